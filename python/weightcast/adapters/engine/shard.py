"""One worker of a live engine: fetches versions, installs them, and knows what its parameters hold."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ... import _core, selector
from ...condition import available
from ...handle import Handle, open
from ...layout import Layout
from ...replica import Replica
from ..catalog import catalog_of
from .settings import Settings

#: Seconds that leaving the job may take.
LEAVING = 5.0


class Target(Protocol):
    """What a version goes into: the parameters of a live model (`LiveLayout`), say."""

    #: Whether bytes land beside what the engine uses, whatever `layout` is asked for.
    always_beside: bool

    def layout(self, *, stage: bool = False, beside: bool = False) -> Layout:
        """The memory in which bytes land."""

    def stale(self) -> bool:
        """Whether the layout has to be read again before the next fetch."""

    def check(self) -> None:
        """Raises if what has arrived cannot be installed in this engine."""

    def finish(self) -> None:
        """Puts in place what has arrived."""


#: Reads the engine's layout by a catalog of what is published.
Read = Callable[[Any], Target]


@dataclass(frozen=True)
class EngineState:
    """What a worker's parameters hold."""

    #: The version installed last; None for the weights that the engine loaded by itself.
    installed: int | None
    #: The version that has arrived whole and verified beside them, and is not installed.
    fetched: int | None
    #: Why the parameters are no whole version, if they are not: then the engine must not generate.
    incomplete: str | None
    #: How the last fetch failed, if it failed.
    failed: str | None = None


class EngineShard:
    """One worker's part in an engine's updates. All workers of the engine make the same calls.

    `fetch` brings a version, `install` puts it in place. With staged landing the engine may generate
    until `install`, and a failure before that leaves the engine as it was; a failed `install` may be
    called again, since the fetched version stays. With landing in place, the engine is paused before
    `fetch`, and a failure leaves it empty until a later update succeeds.
    """

    def __init__(
        self,
        settings: Settings,
        replica: Replica,
        read: Read,
        *,
        installed: int | None = None,
        run: int | None = None,
        incomplete: str | None = None,
    ) -> None:
        """Joins the job. The layout is read at once if it is known by now what is published, so that
        names which do not match are an error here, and otherwise in the first `fetch`. `installed` is
        the version that the parameters hold, of the training run `run` if that is known; `incomplete` says
        why they are none."""
        self.settings = settings
        self._read = read
        self._live: Target | None = None
        self._installed, self._run = installed, run
        self._fetched: int | None = None
        self._incomplete = incomplete
        self._failure: BaseException | None = None
        #: Whether `install` has been done in this update.
        self._repeatable = False
        #: How many fetches there were.
        self._number = 0
        self._fetching: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weightcast-fetch")
        self._replica = replica
        self._handle = self._open(replica)
        try:
            if settings.catalog is not None:
                self._negotiate(catalog_of(settings.catalog), settings.deadline)
            elif self._handle.list(deadline=settings.deadline):
                self._negotiate(self._handle.catalog(deadline=settings.deadline), settings.deadline)
        except BaseException:
            self.close()
            raise

    def _open(self, replica: Replica) -> Handle:
        settings = self.settings
        return open(
            settings.model,
            replica,
            server=settings.server,
            token_file=settings.token_file,
            job=settings.job,
            deadline=settings.deadline,
        )

    def _negotiate(self, catalog: Any, deadline: float) -> None:
        try:
            live = self._read(catalog)
            layout = live.layout(stage=True, beside=self.settings.landing == "staged")
        except Exception as error:
            # The other workers of the engine are about to register: their call fails as well.
            with suppress(_core.WeightcastError):
                self._handle.refuse(f"the layout cannot be read: {error}", deadline=deadline)
            raise
        self._handle.register(layout, deadline=deadline)
        self._live = live

    def _reopen(self) -> None:
        """Joins the job again: the group of this engine's workers ended, as one of them did not make the
        call of the others, or as the server was away for long."""
        self._settled()
        self._handle.close(deadline=LEAVING)
        self._handle = self._open(self._replica)
        self._fetched = None
        if self._live is not None:
            layout = self._live.layout(stage=True, beside=self.settings.landing == "staged")
            self._handle.register(layout, deadline=self.settings.deadline)

    def answers(self) -> bool:
        """Whether the job still knows this worker. All workers of an engine ask together."""
        try:
            self._handle.list(deadline=LEAVING)
        except _core.WeightcastError:
            return False
        return True

    @property
    def state(self) -> EngineState:
        """What the parameters hold now."""
        failed = None if self._failure is None else str(self._failure)
        return EngineState(self._installed, self._fetched, self._incomplete, failed)

    @property
    def version(self) -> dict[str, int] | None:
        """The version installed last, with its training run: `epoch` and `number`. None where either is not
        known, as of weights that the engine loaded by itself."""
        if self._installed is None or self._run is None:
            return None
        return {"epoch": self._run, "number": self._installed}

    @property
    def replica(self) -> Replica:
        """The engine's name in the job, and which of its workers this one is."""
        return self._replica

    @property
    def handle(self) -> Handle:
        """The handle of this worker."""
        return self._handle

    def check_serving(self) -> None:
        """Raises if the parameters are no whole version: the engine must not generate then."""
        if self._incomplete is not None:
            raise _core.WeightcastError(self._incomplete)

    def begin(self) -> None:
        """Begins an update: nothing that came before counts as its install. All workers call; those whose
        group has ended join again."""
        self._repeatable = False
        if not self.answers():
            self._reopen()

    def fetch(
        self,
        version: selector.Selector | int | str = "latest",
        *,
        wait: bool = True,
        deadline: float | None = None,
        allow_rollback: bool = False,
        run: int | None = None,
    ) -> None:
        """Brings a version and verifies it. Without `wait` (staged landing only) returns at once, and
        `install` waits for the rest. An earlier fetch ends first, and its error is nobody's any more.
        `run` is the training run (epoch) of a `version` that is a number: that of another run is not taken.

        A layout that is still to be read is read before this returns: the engine's own loader runs for
        that, on parameters that the engine must not use meanwhile."""
        if not wait and not self._lands_beside:
            raise _core.Misuse(
                "bytes that land in place change the parameters: pause the engine and fetch with wait=True, "
                "or set landing='staged'"
            )
        end = time.monotonic() + (self.settings.deadline if deadline is None else deadline)
        self.read_layout(_left(end))
        self._number += 1
        self._fetched, self._failure, self._repeatable = None, None, False
        if wait:
            self._settled()
            self._fetch(self._number, version, end, allow_rollback, run)
        else:
            self._fetching = self._thread.submit(
                self._fetch, self._number, version, end, allow_rollback, run
            )

    def read_layout(self, deadline: float) -> None:
        """Reads the layout by what is published, unless one that still fits has been read. The engine's own
        loader runs for that, on parameters that the engine must not use meanwhile. All workers call."""
        end = time.monotonic() + deadline
        if self._live is not None and self._live.stale():
            self._lay_off()
        if self._live is None:
            self._settled()
            self._negotiate(self._handle.catalog(deadline=_left(end)), _left(end))

    def arrived(self) -> bool:
        """Whether the version that was fetched last has come, whole and verified; raises if it never will."""
        if self._failure is not None:
            raise self._failure
        return self._fetched is not None

    def give_up(self) -> None:
        """What was fetched and not installed counts for nothing any more."""
        self._number += 1
        self._fetched, self._failure = None, None

    def _fetch(
        self,
        number: int,
        version: selector.Selector | int | str,
        end: float,
        rollback: bool,
        run: int | None,
    ) -> None:
        """`number` counts fetches: what a later one has taken over says nothing of itself any more."""
        try:
            if run is not None:
                self._check_not_over(version, run, end)
            brought = self._bring(version, end, rollback)
            if run is not None and self._handle.epoch != run:
                raise _over(version, run, self._handle.epoch)
        except BaseException as error:
            if number == self._number:
                self._failure = error
            raise
        if number == self._number:
            self._fetched = brought

    def _check_not_over(self, version: selector.Selector | int | str, run: int, end: float) -> None:
        """Raises if there are versions of a later run: nobody publishes in this one any more, so that a wait
        would last until the deadline, or end with a version of the later run that has the same number."""
        # Not `list`: if another worker of the engine does not fetch, this call must not be taken for the
        # `list` with which the next update begins (`begin`). Any listing is newer than (0, 0).
        listing = self._handle._core.wait_changed((0, 0), _left(end))
        newest = max((epoch for (_, epoch), _ in listing.versions), default=run)
        if newest > run:
            raise _over(version, run, newest)

    def _bring(self, version: selector.Selector | int | str, end: float, rollback: bool) -> int | None:
        if not self._lands_beside:
            self._incomplete = f"version {version} was being fetched into the parameters: {AGAIN}"
        # An update leaves alone what it holds if the version is not there yet; a fetch waits.
        self._handle.wait(available(version), deadline=_left(end))
        self._handle.update(version, deadline=_left(end), allow_rollback=rollback)
        if isinstance(version, int) and self._handle.version != version:
            raise _core.Misuse(
                f"this engine holds version {self._handle.version}, and {version} is older; "
                "fetch with allow_rollback=True to go back"
            )
        if self._live is not None:
            self._live.check()
        return self._handle.version

    @property
    def _lands_beside(self) -> bool:
        """Whether a fetch leaves the parameters alone."""
        always = self._live is not None and self._live.always_beside
        return always or self.settings.landing == "staged"

    def install(self) -> int:
        """Puts the fetched version in place, and returns its number. After an error the parameters may
        be neither version: call again, or `fetch` another one. A second call within an update changes
        nothing: workers that have installed are asked again when another one has failed."""
        self._settle()
        if self._repeatable and self._installed is not None:
            self._incomplete = None  # another worker's failure: see `spoil`
            return self._installed
        if self._fetched is None or self._live is None:
            raise _core.Misuse("no version has been fetched; call fetch first")
        self._live.check()
        version = self._fetched
        self._incomplete = f"version {version} was being installed: {AGAIN}"
        self._live.finish()
        self._installed, self._fetched, self._incomplete = version, None, None
        self._run = self._handle.epoch
        self._repeatable = True
        return version

    def withdraw(self) -> None:
        """Before the engine's memory goes for a while (it sleeps): nobody reads the parameters any more.
        All workers call. The next `fetch` registers the memory again."""
        self._settled()
        if self._live is not None and not self._lands_beside:
            self._lay_off()

    def _lay_off(self) -> None:
        """Gives up the layout: the next `fetch` reads another. All workers call."""
        self._settled()
        if self._handle.version is not None:
            self._handle.unpublish(deadline=self.settings.deadline)
        self._handle.unregister(deadline=self.settings.deadline)
        self._live = None

    def discard(self) -> None:
        """The engine's parameters have gone: it may not generate until a version is installed. What lies
        beside them is still there, and can be installed again."""
        self.withdraw()
        self._incomplete = f"the engine slept and discarded its weights: {AGAIN}"
        self._fetched, self._repeatable = None, False
        # Another version that was fetched and given up is none that this engine was told to install.
        if self._live is not None and self._handle.version == self._installed:
            self._fetched = self._installed

    def restore(self) -> None:
        """Installs the version that lies beside parameters that were discarded, if one does that still fits
        them: otherwise the next update ends that."""
        lies = self._fetched is not None and self._live is not None and not self._live.stale()
        if self._incomplete is not None and lies:
            self.install()

    def forget(self) -> None:
        """What was installed is not in use any more."""
        self._installed, self._incomplete, self._repeatable = None, None, False
        self._run = None

    def spoil(self, why: str) -> None:
        """Another worker of this engine failed to install: this one may not generate either, until both
        have."""
        self._incomplete = f"{why}: {AGAIN}"

    def _settled(self) -> None:
        """Waits for a fetch that was begun without waiting; its error is nobody's any more."""
        if self._fetching is not None:
            wait_for([self._fetching])
            self._fetching = None

    def _settle(self) -> None:
        """Waits for a fetch that was begun without waiting, and raises its error."""
        if self._fetching is not None:
            fetching, self._fetching = self._fetching, None
            fetching.result()

    def close(self) -> None:
        """Leaves the job: nobody reads this worker's memory any more. The parameters stay as they are."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._handle.close(deadline=LEAVING)


def _over(version: selector.Selector | int | str, run: int, newer: int | None) -> Exception:
    return _core.VersionUnavailable(
        f"version {version} of run {run} was ordered, and there is run {newer}: another training run of this "
        "model has begun"
    )


def _left(end: float) -> float:
    return max(0.0, end - time.monotonic())


#: What ends an incomplete engine.
AGAIN = "the engine generates nothing until an update succeeds; update again, or restart the engine"
