"""What a handle does with tensors that have copies on the host: in which order, what it refuses, and what is left after each failure."""

from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast import handle as module
from weightcast.handle import BROKEN
from weightcast.pipeline.failure import StageFailed

NO = RuntimeError("no")
REFUSED = wc.Misuse("refused")


class Rig:
    """A handle over a native half and a layout, which note all that is asked of them. `fails` says what a call raises."""

    def __init__(self, copies: int = 1) -> None:
        self.log: list[Any] = []
        self.fails: dict[str, Exception] = {"refuse": REFUSED}
        self.core = Core(self)
        self.layout = SimpleNamespace(copies=Copies(self, copies), origins=Origins(self), mapped=True, memory=True, _core="core", exchange=None, all_beside=True)
        self.handle = wc.Handle(self.core, "policy", wc.Replica("r"))
        self.handle._layout = self.layout

    def come(self, *said: Any) -> None:
        self.log.append(said if len(said) > 1 else said[0])
        if said[0] in self.fails:
            raise self.fails[said[0]]

    def did(self) -> list[Any]:
        found = list(self.log)
        self.log.clear()
        return found

    def holding(self, number: int | None) -> "Rig":
        self.core.version = None if number is None else (number, 6)
        return self


class Core:
    version: Any = None

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.brought = SimpleNamespace(changed=True)
        self.brings: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def called(*told: Any) -> Any:
            self.rig.come(name, *told)
            if name in ("update", "replicate", "accept"):
                self.version = self.brings or self.version
                return self.brought
            if name == "publish":
                self.version = (told[0], 6)
            if name in ("unpublish", "close"):
                self.version = None
            return None

        return called


class Copies:
    def __init__(self, rig: Rig, count: int) -> None:
        self.rig, self.count, self.installed, self.broken, self.held = rig, count, None, False, None

    def __len__(self) -> int:
        return self.count

    def out(self) -> None:
        self.installed = None
        self.rig.come("out")

    def into(self, version: Any) -> None:
        self.rig.come("into", version)
        self.installed = version

    def on_current_streams(self, call: Any) -> Any:
        return ("on streams", call)


class Origins:
    def __init__(self, rig: Rig) -> None:
        self.rig, self.gone, self.why = rig, None, None

    def moved(self) -> Any:
        return self.gone

    def unready(self) -> Any:
        return self.why

    def publish(self) -> None:
        self.rig.come("noted")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def refused(rig: Rig, call: Any, why: str, deadline: float = 9.0) -> None:
    """All shards are told; this one raises what that raises."""
    with pytest.raises(wc.Misuse, match="^refused$"):
        call()
    assert rig.did() == [("refuse", why, deadline)]


def test_registering(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, layout = rig.handle, rig.layout
    handle._layout = None
    warned: list[Any] = []
    monkeypatch.setattr(module.mappings, "warn", lambda *told, **named: warned.append((told, named)))
    layout._places = "places"
    handle.register(layout, deadline=9.0)
    assert rig.did() == [("register", "core", 9.0, None)] and handle._layout is layout and warned == []
    assert rig.holding(7).layout.copies.held() == (7, 6) and (handle.version, handle.epoch) == (7, 6)
    assert (rig.holding(None).handle.version, handle.epoch) == (None, None)
    layout.mapped = False
    handle.register(layout)
    assert warned == [(("places",), {"level": 2})] and rig.did() == [("register", "core", 60.0, None)]
    rig.fails["register"] = NO
    handle._layout = None
    with pytest.raises(RuntimeError):
        handle.register(layout)
    assert handle._layout is None
    layout.origins.gone = "moved"
    rig.did()
    refused(rig, lambda: handle.register(layout, deadline=9.0), "moved")
    layout.origins.gone, layout.memory = None, False
    refused(rig, lambda: handle.register(layout, deadline=9.0), "a layout without memory (Layout(memory=False)) can be planned, not registered")


def test_blocks_are_exchanged_as_arrays(rig: Rig) -> None:
    seen: list[Any] = []
    rig.layout.exchange = lambda numbers: seen.append(numbers.tolist()) or numbers.__setitem__(0, 9)
    rig.handle.register(rig.layout)
    exchange, numbers = rig.did()[0][3], bytearray(b"\x01\0\0\0\x02\0\0\0")
    exchange(numbers)
    assert seen == [[1, 2]] and numbers == bytearray(b"\x09\0\0\0\x02\0\0\0")


def test_unregistering_and_closing_let_go_of_the_memory(rig: Rig) -> None:
    for call, said in ((rig.handle.unregister, "unregister"), (rig.handle.close, "close")):
        rig.handle._layout = rig.layout
        call(deadline=9.0)
        assert rig.did() == [(said, 9.0)] and rig.handle._layout is None
        rig.fails[said], rig.handle._layout = NO, rig.layout
        with pytest.raises(RuntimeError):
            call()
        assert rig.handle._layout is rig.layout, "it is perhaps still read"
        rig.did()


def test_publishing_copies_out_first(rig: Rig) -> None:
    rig.handle.publish(7, deadline=9.0, seal=True)
    assert rig.did() == ["out", ("publish", 7, 9.0, True), "noted"]
    assert rig.handle.install() is False, "tensors are what was published"
    rig.handle.unpublish(deadline=9.0)
    assert rig.did() == [("unpublish", 9.0)] and rig.handle._own is None
    plain = Rig(copies=0)
    plain.holding(3).handle.publish(7)
    assert plain.did() == [("publish", 7, 60.0, False), "noted"], "what lies in place has no copies"
    plain.handle._layout = None
    plain.handle.publish(8)
    assert plain.did() == [("publish", 8, 60.0, False)]


@pytest.mark.parametrize(("change", "why"), [
    (lambda rig: setattr(rig.layout.origins, "gone", "moved"), "moved"),
    (lambda rig: setattr(rig.layout.origins, "why", "adapters are not merged"), "adapters are not merged"),
    (lambda rig: rig.holding(3), "the host copies of what is to be published hold version 3: unpublish it first"),
    (lambda rig: setattr(rig.layout.copies, "broken", True), BROKEN),
])
def test_what_is_not_published(rig: Rig, change: Any, why: str) -> None:
    change(rig)
    refused(rig, lambda: rig.handle.publish(7, deadline=9.0), why)


def test_copies_that_fail_fail_for_all_shards(rig: Rig) -> None:
    rig.fails["out"] = NO
    with pytest.raises(wc.Misuse, match="^refused$"):
        rig.handle.publish(7, deadline=9.0)
    assert rig.did() == ["out", ("refuse", "tensors could not be copied to host memory: no", 9.0)]
    rig.fails["out"] = failed = StageFailed("w", "gather", "no")
    with pytest.raises(StageFailed) as caught:
        rig.handle.publish(7, deadline=9.0)
    assert caught.value is failed and rig.did() == ["out", ("refuse", str(failed), 9.0)]
    del rig.fails["out"]
    rig.fails["publish"] = NO
    with pytest.raises(RuntimeError):
        rig.handle.publish(7)
    assert rig.did()[-1] == ("publish", 7, 60.0, False), "what is not published is not noted"


def test_an_unpublication_that_fails_leaves_what_is_held(rig: Rig) -> None:
    rig.handle.publish(7)
    rig.layout.copies.installed = "before"
    rig.fails["unpublish"] = wc.ContentMismatch("other bytes")
    with pytest.raises(wc.ContentMismatch):
        rig.handle.unpublish()
    assert rig.handle._own == 7 and rig.layout.copies.installed == "before"
    rig.core.version = None
    with pytest.raises(wc.ContentMismatch):
        rig.handle.unpublish()
    assert rig.handle._own is rig.layout.copies.installed is None, "it is revoked all the same"
    rig.layout.copies.installed, rig.handle._layout.copies.count = "before", 0
    del rig.fails["unpublish"]
    rig.handle.unpublish()
    assert rig.layout.copies.installed == "before"
    rig.handle._layout = None
    rig.handle.unpublish()


BRINGS = {
    "update": (lambda h: h.update(3, deadline=9.0, allow_rollback=True), ("update", wc.exact(3), True, False, 9.0, None)),
    "staged": (lambda h: h.update("latest", deadline=9.0, staged=True), ("update", wc.latest(), False, True, 9.0, None)),
    "replicate": (lambda h: h.replicate(3, deadline=9.0), ("replicate", wc.exact(3), 9.0, None)),
    "accept": (lambda h: h.accept(deadline=9.0), ("accept", None, 9.0)),
    "fetch": (lambda h: h.fetch(3, deadline=9.0, allow_rollback=True), ("update", wc.exact(3), True, False, 9.0, None)),
}


@pytest.mark.parametrize("kind", BRINGS)
def test_what_was_brought_is_copied_into_the_tensors_once(rig: Rig, kind: str) -> None:
    call, asked = BRINGS[kind]
    rig.core.brings = (3, 6)
    assert call(rig.handle) is rig.core.brought
    install = [] if kind == "fetch" else [("into", (3, 6))]
    assert rig.did() == [asked, *install]
    assert rig.handle.install() is (kind == "fetch")
    assert rig.did() == [("into", (3, 6))] * (kind == "fetch")
    rig.core.brought.changed = False
    call(rig.handle)
    assert rig.did() == [asked], "nothing new came"
    rig.core.brought.changed = True
    call(rig.handle)
    rig.handle.install()
    assert rig.did() == [asked, ("into", (3, 6))], "other bytes of the same version did"
    rig.fails[asked[0]] = NO
    with pytest.raises(RuntimeError):
        call(rig.handle)
    assert rig.did() == [asked]
    rig.layout.origins.gone = "moved"
    refused(rig, lambda: call(rig.handle), "moved")


def test_a_version_of_its_own_is_not_copied_back(rig: Rig) -> None:
    rig.handle.publish(3)
    assert rig.handle.install() is False
    rig.core.brings = (3, 7)
    rig.handle.update("latest")
    assert rig.did()[-1] == ("into", (3, 7)), "of another run"
    assert rig.handle._own is None


def test_an_install_that_broke_off(rig: Rig) -> None:
    rig.holding(3).fails["into"] = NO
    with pytest.raises(RuntimeError):
        rig.handle.install()
    rig.layout.copies.broken = True
    with pytest.raises(wc.Misuse) as caught:
        rig.holding(None).handle.install()
    assert str(caught.value) == BROKEN
    del rig.fails["into"]
    assert rig.holding(3).handle.install() is True
    rig.layout.origins.gone = "moved"
    with pytest.raises(wc.Misuse, match="^moved$"):
        rig.holding(4).handle.install()
    for other in (Rig(0).holding(3), Rig().holding(None)):
        assert other.handle.install() is False
    rig.handle._layout = None
    assert rig.handle.install() is False


def test_memory_that_is_in_use_is_neither_fetched_into_nor_followed(rig: Rig) -> None:
    said = "bytes would land in tensors that are in use: register a layout made with beside=True"
    for layout in (None, SimpleNamespace(all_beside=False)):
        rig.handle._layout = layout
        for call in (rig.handle.fetch, rig.handle.follow):
            with pytest.raises(wc.Misuse) as caught:
                call()
            assert str(caught.value) == said and rig.did() == []


def test_following_takes_what_it_is_given(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Follower", lambda *told: told)
    assert rig.handle.follow("at", install="install", agree="agree") == (rig.handle, "at", "install", "agree")
    assert rig.handle.follow() == (rig.handle, None, None, None)
    rig.handle.replica = wc.Replica("r", 0, 2)
    assert rig.handle.follow(agree="agree") == (rig.handle, None, None, "agree")
    with pytest.raises(wc.Misuse) as caught:
        rig.handle.follow()
    assert str(caught.value) == "2 shards would install at different steps: pass agree=, which returns the smallest of all shards' numbers"


def test_blocks(rig: Rig) -> None:
    with rig.handle as same, same.published(7, deadline=9.0) as inside:
        assert inside is rig.handle
    assert rig.did() == ["out", ("publish", 7, 9.0, False), "noted", ("unpublish", 9.0), ("close", 60.0)]
    rig.handle._layout = rig.layout
    rig.fails["close"] = wc.WeightcastError("busy")
    with pytest.raises(KeyError), rig.handle, rig.handle.published(7):
        raise KeyError
    assert rig.did() == ["out", ("publish", 7, 60.0, False), "noted", ("close", 2.0), ("close", 2.0)], "its own error matters more"


def test_bars_end_with_their_call(rig: Rig) -> None:
    class Bar(module.ProgressBar):
        def __init__(self) -> None:
            self.closed = 0

        def close(self) -> None:
            self.closed += 1

    bar = Bar()
    for call in (rig.handle.update, rig.handle.replicate, rig.handle.fetch):
        call(3, progress=bar)
    rig.fails["update"] = NO
    with pytest.raises(RuntimeError):
        rig.handle.update(3, progress=bar)
    assert bar.closed == 4 and [one[-1] for one in rig.did() if one[0] in ("update", "replicate")] == [bar] * 4


def test_calls_of_another_thread_run_on_the_streams_of_this_one(rig: Rig) -> None:
    assert rig.handle._here(print) == ("on streams", print)
    rig.layout.copies.count = 0
    assert rig.handle._here(print) is print
    rig.handle._layout = None
    assert rig.handle._here(print) is print


def test_what_a_handle_says_of_itself(rig: Rig) -> None:
    assert repr(rig.holding(7).handle) == "<Handle policy/r[0/1] at 7>"
    rig.core.progress, rig.core.progress_total = 5, 9
    assert (rig.handle.progress, rig.handle.progress_total) == (5, 9)

    class Forked:
        @property
        def version(self) -> Any:
            raise wc.Misuse("of another process")

    assert repr(wc.Handle(Forked(), "m", wc.Replica("r", 1, 2))) == "<Handle m/r[1/2] of another process>"


def test_versions_of_older_runs_are_listed_unless_the_newest_has_them(rig: Rig) -> None:
    listing = SimpleNamespace(versions=[((1, 5), ["old"]), ((2, 5), ["old"]), ((1, 6), ["a", "b"])])
    assert module._versions(listing) == {1: {"a", "b"}, 2: {"old"}}


def test_a_condition_of_the_caller_is_asked_at_every_change(rig: Rig) -> None:
    listings = [SimpleNamespace(revision=(1, n), versions=[((n, 1), ["a"])]) for n in range(3)]
    waits: list[Any] = []
    rig.core.list = lambda deadline: listings[0]
    rig.core.wait_changed = lambda revision, deadline: waits.append(revision) or listings[revision[1] + 1]
    assert rig.handle.wait(lambda versions: 2 in versions, deadline=9.0) == {2: {"a"}}
    assert waits == [(1, 0), (1, 1)]


def test_a_wait_ends_at_its_deadline_however_often_the_listing_changes(monkeypatch):
    now, patience = [100.0], []

    def changed(revision: int, left: float) -> Any:
        patience.append(left)
        now[0] += 4.0
        return wc._core.Listing((revision[0] + 1, revision[1]), ())

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    core = SimpleNamespace(list=lambda left: wc._core.Listing((1, 1), ()), wait_changed=changed)
    waits = [False, False, False, False, True]
    assert wc.Handle(core, "policy", wc.Replica("r")).wait(lambda versions: waits.pop(0), deadline=10.0) == {}
    assert patience == [10.0, 6.0, 2.0, 0.0]
