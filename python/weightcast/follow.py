"""Following: a thread fetches each new version, and the engine's own code calls nothing."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _core
from .condition import available
from .selector import at_least

if TYPE_CHECKING:
    from .handle import Handle

log = logging.getLogger("weightcast")

#: A torch module, or what has a function called at each safe point.
SafePoint = Any

#: Seconds after which a wait for a version begins anew; a new training run, whose numbers begin again, is
#: seen so late at most.
PATIENCE = 2.0
#: Seconds that a fetch may take.
FETCHING = 600.0
#: Errors that trying again does not end.
FOR_GOOD = (
    _core.GroupBroken,
    _core.GroupDiverged,
    _core.LayoutMismatch,
    _core.Misuse,
    _core.NoRoom,
    _core.ServerUnreachable,
)
#: What a shard says that has nothing to install, or that has failed; otherwise a version, from 2.
NOTHING, FAILED, FIRST = 1, 0, 2


class Follower:
    """Keeps the tensors of one shard on the newest version. Made by `Handle.follow`.

    A version is fetched beside the tensors while they are used. The next safe point installs it; only then
    the next one is fetched. What a fetch fails with is logged and tried again; an error that trying again
    does not end is raised at the next safe point of every shard, rather than leaving an engine behind for
    ever.
    """

    def __init__(
        self,
        handle: Handle,
        at: SafePoint | None,
        install: Callable[[], object] | None,
        agree: Callable[[int], int] | None,
    ) -> None:
        self._handle, self._finish = handle, install or _nothing
        self._agree = agree
        #: The version that the tensors hold; None before the first.
        self.version: int | None = None
        #: What ended the thread or an install, if anything has.
        self.error: Exception | None = None
        self._ready: int | None = None
        self._changed = threading.Condition()
        #: One safe point at a time.
        self._steps = threading.Lock()
        #: Turns of the thread that have begun, and after how many it ends. Shards take them together.
        self._turns, self._last = 0, math.inf
        self._held = False
        self._unhook = _hook(at, self.step)
        self._thread = threading.Thread(target=self._run, name="weightcast-follow", daemon=True)
        self._thread.start()

    def step(self) -> bool:
        """A safe point: nothing uses the tensors until it returns. Installs what has been fetched, if all
        shards have it; true if so. Raises what ended the thread, here or on another shard. After `stop` it
        does nothing."""
        with self._steps:
            return not self._stopping and self._step()

    def _step(self) -> bool:
        with self._changed:
            ready, error = self._ready, self.error
        mine = FAILED if error is not None else NOTHING if ready is None else ready + FIRST
        least = mine if self._agree is None else self._agree(mine)
        if error is not None:
            raise error
        if least == FAILED:
            name = self._handle.replica.name
            raise _core.WeightcastError(f"another shard of {name} cannot follow any more: see its error")
        if ready is None or least != mine:
            return False
        self._install(ready)
        return True

    def _install(self, version: int) -> None:
        try:
            self._handle.install()
            self._finish()
        except Exception as error:
            self.error = error
            raise
        with self._changed:
            self.version, self._ready = version, None
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends the hook, and the thread after the call of the handle that is under way, which may be a fetch:
        then the handle is the caller's again. All shards call between the same two safe points."""
        self._unhook()
        with self._changed:
            self._held = True
            turns = self._turns
        # One shard may have begun a turn that another has not, and needs all of them to end that.
        last = turns if self._agree is None else self._agree(turns) + 1
        with self._changed:
            self._last, self._held = last, False
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _stopping(self) -> bool:
        return self._last < math.inf

    def _run(self) -> None:
        try:
            while self._begin_turn():
                self._bring()
        except Exception as error:
            log.error("following %s has ended: %s", self._handle.model, error)
            with self._changed:
                self.error = error

    def _begin_turn(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._turns += 1
            return self._turns <= self._last

    def _bring(self) -> None:
        """One turn: waits a while for a newer version, fetches one if there is one, and waits until it is
        installed. All that decides about calls is the same on all shards."""
        handle, held = self._handle, self._handle.version
        try:
            self._await(0 if held is None else held + 1)
            # Without a version, a fetch would wait for one.
            if held is None and not handle.list(deadline=FETCHING):
                return
            if handle._fetch("latest", FETCHING).changed:
                self._hand_over(handle.version)
        except FOR_GOOD:
            raise
        except _core.WeightcastError as error:
            log.warning("following %s: %s; trying again", handle.model, error)
            self._rest()

    def _await(self, newer: int) -> None:
        """Waits for a version of at least this number, in the newest run. A run may have begun anew with
        smaller numbers: whatever comes of the wait, a fetch says whether there is a newer one."""
        try:
            self._handle.wait(available(at_least(newer)), deadline=PATIENCE)
        except _core.Timeout:
            pass
        except _core.VersionUnavailable:  # said at once
            self._rest()

    def _rest(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, PATIENCE)

    def _hand_over(self, version: int | None) -> None:
        with self._changed:
            self._ready = version
            self._changed.wait_for(lambda: self._stopping or self._ready is None)


def _hook(at: SafePoint | None, step: Callable[[], bool]) -> Callable[[], object]:
    """Has `step` called at the safe points; returns what ends that, where there is such a thing."""
    if at is None:
        return _nothing
    before_forward = getattr(at, "register_forward_pre_hook", None)
    if before_forward is None:
        at(step)
        return _nothing
    remove: Callable[[], object] = before_forward(lambda *_: _nothing(step())).remove
    return remove


def _nothing(*_: object) -> None:
    """Also what a hook returns, so that arguments of the forward pass stay as they are."""
