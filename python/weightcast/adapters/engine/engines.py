"""The engines of a trainer, updated together by plain calls: all of them serve the new version, or all the
old one, unless the trainer is lost in between. For engines whose workers take no orders (see `fleet`): of
vLLM's own clients, LoRA slots, and for bytes that land in place.
"""

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ... import _core
from .times import EngineTimes, Stopwatch

log = logging.getLogger("weightcast")

#: Seconds until an engine is asked how far it is, the first time and at most. A client may have `looks`
#: of its own.
LOOKS = (0.002, 0.1)
#: How often installing is tried: the fetched version stays beside the parameters.
TRIES = 2


class Engines:
    """One or more engines, each a client with the methods of vLLM's `VLLMWeightSyncClient`, whichever
    engine it talks to; `pause`, `resume`, `states`, `take` and `give_back`, if it has them, are used too.
    `holder` is who exchanges weights."""

    def __init__(self, clients: Iterable[Any], holder: str = "trainer") -> None:
        self._holder = holder
        self._clients = list(clients)
        if not self._clients:
            raise _core.Misuse("no engine to update; give at least one client")
        self._threads = ThreadPoolExecutor(len(self._clients), thread_name_prefix="weightcast-engine")
        self._watches = {id(client): Stopwatch(_name(client)) for client in self._clients}

    @property
    def times(self) -> list[EngineTimes]:
        """How long each engine's last update took."""
        return [watch.times() for watch in self._watches.values()]

    def join(self, settings: dict[str, Any]) -> None:
        """Has all engines join the job."""
        self._all(lambda client: client.init_weight_transfer_engine(settings))

    def update(self, version: int, *, staged: bool, pause: str, deadline: float) -> None:
        """Has all engines fetch a version, pauses them, and has them install the version and generate on."""
        self.begin()
        try:
            if staged:
                self.fetch(version, deadline=deadline)
            # For the pause, a fetch in place, and two tries to install.
            self.take(4 * deadline)
        except BaseException:
            self.abandon()
            raise
        try:
            self.pause(pause)
        except BaseException:
            # Nothing has changed yet: those that stand still go on with what they hold.
            self.abandon()
            self.resume()
            raise
        if not staged:
            # A failure leaves engines empty: they stay paused until an update succeeds.
            self.fetch_in_place(version, deadline=deadline)
        self.install(version)

    def begin(self) -> None:
        """Begins an update on all engines. One that a lost trainer left open is abandoned first."""
        for watch in self._watches.values():
            watch.begin()
        self._all(_begin)

    def abandon(self) -> None:
        """Ends an update on all engines before anything was installed; they hold what they held."""
        self._all(_abandon)
        for watch in self._watches.values():
            watch.ended()

    def fetch(self, version: int, *, deadline: float) -> None:
        """Has all engines fetch a version, and waits until all have verified it. They generate meanwhile,
        unless a client has no `states` that could be asked how far its engine is."""
        self._fetch_all(lambda client: _fetch(client, version, deadline))

    def fetch_in_place(self, version: int, *, deadline: float) -> None:
        """Has all engines, which are paused, fetch a version into their parameters."""
        info = {"version": version, "wait": True, "deadline": deadline}
        self._fetch_all(lambda client: client.update_weights(info))

    def _fetch_all(self, call: Callable[[Any], None]) -> None:
        began = time.monotonic()

        def fetch(client: Any) -> None:
            call(client)
            self._watches[id(client)].fetched(began)

        self._all(fetch)

    def take(self, seconds: float) -> None:
        """Keeps other trainers from exchanging weights of these engines, until these are resumed, or for so
        long at the most."""
        try:
            self._all(lambda client: _call(client, "take", self._holder, seconds))
        except BaseException:
            for client in self._clients:
                self._give_back(client)
            raise

    def _give_back(self, client: Any) -> None:
        try:
            _call(client, "give_back", self._holder)
        except Exception as error:
            log.warning("%s: %s", _name(client), error)

    def pause(self, mode: str) -> None:
        """Stops generation on all engines that can be paused."""
        for client in self._clients:
            if hasattr(client, "pause"):
                self._watches[id(client)].pausing()
        self._all(lambda client: _call(client, "pause", mode))

    def resume(self) -> None:
        """Has all engines generate on; one that does not is no reason to leave the others paused."""
        for client, error in self._resumed(self._clients):
            log.warning("%s: not resumed: %s", _name(client), error)

    def install(self, version: int) -> None:
        """Has all engines, which are paused, install what they fetched, and then generate on.

        Those that fail stay paused while the others go on with the new version: no engine serves the old
        one beside it. If all fail, and all workers of all engines hold one and the same version, whole,
        all go on with that."""
        outcomes = list(self._threads.map(lambda client: _install(client, version), self._clients))
        failed = [(c, o) for c, o in zip(self._clients, outcomes, strict=True) if o is not None]
        stuck = [client for client, _ in failed]
        if len(failed) < len(self._clients):
            failed += self._resumed([client for client in self._clients if client not in stuck])
        elif _alike(self._clients):
            self.resume()
        if failed:
            told = "; ".join(f"{_name(client)}: {error}" for client, error in failed)
            raise _core.WeightcastError(
                f"version {version} was not installed by {len(failed)} of {len(self._clients)} engines, "
                f"which stay paused if their weights are incomplete or others went on: {told}"
            )

    def _resumed(self, clients: Iterable[Any]) -> list[tuple[Any, Exception]]:
        """Has engines generate on, and says which did not, and why."""
        failed: list[tuple[Any, Exception]] = []
        for client in clients:
            try:
                _call(client, "resume")
            except Exception as error:
                failed.append((client, error))
            else:
                self._watches[id(client)].resumed()
                self._give_back(client)
        return failed

    def _all(self, call: Callable[[Any], None]) -> None:
        """Calls every engine at once; waits for all before it raises the first error."""
        calls = [self._threads.submit(call, client) for client in self._clients]
        errors = [each.exception() for each in calls]
        for error in errors:
            if error is not None:
                raise error


def _begin(client: Any) -> None:
    try:
        client.start_weight_update()
    except Exception as error:
        log.warning("%s: %s; abandoning the update that is open", _name(client), error)
        _abandon(client)
        client.start_weight_update()


def _abandon(client: Any) -> None:
    try:
        client.update_weights({"abandon": True})
    except Exception as error:
        # How the engine says that the update has ended.
        log.debug("%s: %s", _name(client), error)


def _fetch(client: Any, version: int, deadline: float) -> None:
    background = hasattr(client, "states")
    client.update_weights({"version": version, "wait": not background, "deadline": deadline})
    if background:
        _await_fetched(client, version, deadline)


def _await_fetched(client: Any, version: int, deadline: float) -> None:
    pause, most = getattr(client, "looks", LOOKS)
    end = time.monotonic() + deadline
    while True:
        states = client.states()
        failed = [state.failed for state in states if state.failed is not None]
        if failed:
            raise _core.WeightcastError(f"{_name(client)}: version {version} was not fetched: {failed[0]}")
        if states and all(state.fetched == version for state in states):
            return
        if time.monotonic() > end:
            raise _core.WeightcastError(
                f"{_name(client)}: version {version} was not fetched within {deadline:.0f} s; "
                "`weightcast why` tells what its replica waits for"
            )
        time.sleep(pause)
        pause = min(2 * pause, most)


def _install(client: Any, version: int) -> Exception | None:
    """The error of the last try, if none succeeded. An answer may be lost: an engine that holds the version
    on all of its workers has installed it."""
    error: Exception | None = None
    for _ in range(TRIES):
        try:
            client.finish_weight_update(str(version))
            return None
        except Exception as raised:
            log.warning("%s: version %d not installed: %s", _name(client), version, raised)
            error = raised
    if _held(client) == {version} and hasattr(client, "stamp"):
        try:
            client.stamp(str(version))
            return None
        except Exception as raised:
            error = raised
    return error


def _alike(clients: Iterable[Any]) -> bool:
    """Whether all workers of all engines hold one and the same version, whole."""
    held: set[int | None] = set()
    for client in clients:
        own = _held(client)
        if own is None:
            return False
        held |= own
    return len(held) == 1


def _held(client: Any) -> set[int | None] | None:
    """The versions that the workers of an engine hold; None if one has none whole, or does not say."""
    try:
        states = client.states()
    except Exception:
        return None
    if not states or any(state.incomplete is not None for state in states):
        return None
    return {state.installed for state in states}


def _call(client: Any, method: str, *arguments: Any) -> None:
    found = getattr(client, method, None)
    if found is not None:
        found(*arguments)


def _name(client: Any) -> str:
    return str(getattr(client, "base_url", type(client).__name__))
