"""What a follower asks of its handle, and what it says and installs, with a handle that answers as a test says."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast import follow as module
from weightcast.follow import Follower

SOON = 20.0


class Handle:
    """Notes calls, and answers them from lists; ends the thread when it has nothing more to say."""

    model, replica = "policy", wc.Replica("engine")

    def __init__(self, waits: Any = (), listed: Any = True, changed: Any = True, version: Any = 3, fetched: Any = None) -> None:
        self.log: list[Any] = []
        self.waits, self.listed, self.changed, self.version, self.fetched = list(waits), listed, changed, version, fetched

    def wait(self, condition: Any, *, deadline: float) -> None:
        self.log.append(("wait", condition, deadline))
        if not self.waits:
            raise Ended
        error = self.waits.pop(0)
        if error is not None:
            raise error

    def list(self, *, deadline: float) -> Any:
        self.log.append(("list", deadline))
        return self.listed

    def _fetch(self, version: Any, deadline: float) -> Any:
        self.log.append(("fetch", version, deadline))
        if isinstance(self.changed, Exception):
            raise self.changed
        self.version = self.version if self.fetched is None else self.fetched
        return SimpleNamespace(changed=self.changed)

    def install(self) -> bool:
        self.log.append("install")
        return True


class Ended(Exception):
    """The test is over."""


class Unwatched(Follower):
    """A follower whose thread a test is itself."""

    def __init__(self, handle: Any, **more: Any) -> None:
        self.rests: list[Any] = []
        given = {"at": None, "install": None, "agree": None} | more
        super().__init__(handle, given["at"], given["install"], given["agree"])

    def _run(self) -> None: ...

    def _rest(self) -> None:
        self.rests.append(len(self._handle.log))

    def turn(self) -> None:
        """One turn of the thread; what is ready is left so."""
        hand_over, self._hand_over = self._hand_over, lambda version: setattr(self, "_ready", version)
        self._bring()
        self._hand_over = hand_over


def newer(than: int) -> Any:
    return ("wait", wc.available(wc.at_least(than)), 2.0)


FETCH, LIST = ("fetch", "latest", 600.0), ("list", 600.0)
#: What the handle says; what it was asked, what is ready, and how many rests there were.
TURNS: dict[str, tuple[Handle, list[Any], int | None, int]] = {
    "a newer one": (Handle([None], fetched=4), [newer(4), FETCH], 4, 0),
    "a run with smaller numbers": (Handle([wc.Timeout()], fetched=1), [newer(4), FETCH], 1, 0),
    "nothing newer": (Handle([wc.Timeout()], changed=False), [newer(4), FETCH], None, 0),
    "said at once": (Handle([wc.VersionUnavailable()], changed=False), [newer(4), FETCH], None, 1),
    "the first": (Handle([None], version=None, fetched=0), [newer(0), LIST, FETCH], 0, 0),
    "no version yet": (Handle([wc.Timeout()], version=None, listed={}), [newer(0), LIST], None, 0),
    "a fetch that fails": (Handle([None], changed=wc.SourceLost("gone")), [newer(4), FETCH], None, 1),
    "a wait that fails": (Handle([wc.SourceLost("gone")]), [newer(4)], None, 1),
}


@pytest.mark.parametrize(("handle", "asks", "ready", "rests"), TURNS.values(), ids=[*TURNS])
def test_one_turn(handle: Handle, asks: list[Any], ready: int | None, rests: int) -> None:
    follower = Unwatched(handle)
    follower.turn()
    assert handle.log == asks and follower._ready == ready and len(follower.rests) == rests
    assert follower.error is None


def test_what_fails_and_is_tried_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Unwatched(Handle([wc.SourceLost("gone")])).turn()
    assert "following policy: gone; trying again" in caplog.text


@pytest.mark.parametrize("kind", [wc.GroupBroken, wc.GroupDiverged, wc.LayoutMismatch, wc.Misuse, wc.NoRoom, wc.ServerUnreachable, ValueError])
def test_what_trying_again_does_not_end_ends_the_thread(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(Handle([kind("why")]), None, None, None)
    follower._thread.join(SOON)
    assert not follower._thread.is_alive() and "following policy has ended: why" in caplog.text
    for _ in range(2):
        with pytest.raises(kind, match="why"):
            follower.step()
    follower.stop()
    assert follower.step() is False, "it is the caller's again"


def agreeing(said: list[Any], others: Any) -> Any:
    """All shards' numbers: this one's, and those that the others say."""
    return lambda mine: said.append(mine) or min(mine, others.pop(0))


def test_a_safe_point_installs_what_all_shards_have() -> None:
    said: list[Any] = []
    finished: list[Any] = []
    handle = Handle()
    follower = Unwatched(handle, agree=agreeing(said, [1, 1, 1, 9, 8, 2]), install=lambda: finished.append(list(handle.log)))
    assert follower.step() is False, "nothing has come"
    follower._ready = 7
    assert follower.step() is False, "the other has nothing"
    follower._ready = None
    assert follower.step() is False
    follower._ready = 7
    assert follower.step() is True and follower.version == 7 and follower._ready is None
    assert finished == [["install"]] and said == [1, 9, 1, 9]
    follower._ready = 7
    assert follower.step() is False, "the other has an earlier one"
    follower._ready = 0
    assert follower.step() is True and said[-1] == 2 and follower.version == 0


def test_a_shard_that_fails_tells_the_others() -> None:
    said: list[Any] = []
    follower = Unwatched(Handle(), agree=agreeing(said, [5, 0, 0]))
    follower.error = ValueError("why")
    with pytest.raises(ValueError, match="why"):
        follower.step()
    follower.error = None
    for ready in (None, 4):
        follower._ready = ready
        with pytest.raises(wc.WeightcastError, match="^another shard of engine cannot follow any more: see its error$"):
            follower.step()
    assert said == [0, 1, 6] and follower.version is None


def test_an_install_that_fails_is_raised_again() -> None:
    def fails() -> None:
        raise ValueError("why")

    follower = Unwatched(Handle(), install=fails)
    follower._ready = 4
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            follower.step()
    assert follower.version is None and follower._handle.log == ["install"]


class Module:
    """Hooks as torch's."""

    def __init__(self) -> None:
        self.hooks: list[Any] = []

    def register_forward_pre_hook(self, hook: Any) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))


def test_safe_points_of_a_module_leave_arguments_alone_and_end() -> None:
    at = Module()
    follower = Unwatched(Handle(), at=at)
    (hook,) = at.hooks
    follower._ready = 4
    assert hook(at, "arguments") is None and follower.version == 4
    with follower as same:
        assert same is follower
    assert at.hooks == [] and follower.step() is False
    steps: list[Any] = []
    other = Unwatched(Handle(), at=steps.append)
    assert steps == [other.step]
    other.stop()


def until_ready(follower: Follower) -> None:
    """Looks again and again: nobody is told of that but the next safe point."""
    end = time.monotonic() + SOON
    while follower._ready is None:
        assert follower._thread.is_alive() and time.monotonic() < end


def test_a_version_waits_for_its_install_and_the_next_one_for_that() -> None:
    handle = Handle([None, None], fetched=4)
    follower = Follower(handle, None, None, None)
    until_ready(follower)
    assert handle.log == [newer(4), FETCH], "it fetches nothing more"
    handle.fetched = 5
    assert follower.step()
    until_ready(follower)
    assert handle.log == [newer(4), FETCH, "install", newer(5), FETCH] and follower._ready == 5
    follower.stop()
    assert not follower._thread.is_alive() and follower.version == 4, "what has come late is not installed"
    assert follower.step() is False


def test_rests_are_as_long_as_patience_or_until_it_stops() -> None:
    waits: list[Any] = []

    class Changed:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def notify_all(self) -> None: ...

        def wait_for(self, ready: Any, timeout: Any = None) -> bool:
            waits.append((ready(), timeout))
            return True

    follower = Unwatched(Handle())
    follower._thread.join(SOON)
    follower._changed = Changed()
    Follower._rest(follower)
    follower._hand_over(4)
    follower._ready = None
    follower._last = 0
    Follower._rest(follower)
    follower._hand_over(4)
    assert waits == [(False, 2.0), (False, None), (True, 2.0), (True, None)] and module.PATIENCE == 2.0
