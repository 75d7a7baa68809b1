"""One worker's part in an engine's updates, with a handle and a layout that answer as a test says: each call in its order, and
what the parameters hold after it or after its failure."""

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import EngineState, Settings
from weightcast.adapters.engine import shard as module
from weightcast.adapters.engine.shard import EngineShard

AGAIN = "the engine generates nothing until an update succeeds; update again, or restart the engine"
NO = RuntimeError("no")
SOON = 20.0


class Rig:
    """A handle and a target, which note all that is asked of them. `fails` says what a call raises; the clock stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        self.fails: dict[str, Exception] = {}
        self.holds: int | None = None
        self.brings: int | None = None
        self.runs: dict[tuple[int, int], Any] = {(1, 6): {"t"}}
        self.listed, self.is_stale, self.always, self.run = {1: {"t"}}, False, False, 6
        self.go, self.clock = Event(), [100.0]
        self.go.set()
        monkeypatch.setattr(module, "open", self.open)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.clock[0])
        monkeypatch.setattr(module, "catalog_of", lambda given: f"made of {given}")

    def come(self, *said: Any) -> None:
        self.log.append(said if len(said) > 1 else said[0])
        if said[0] in self.fails:
            raise self.fails[said[0]]

    def open(self, *told: Any, **named: Any) -> Any:
        self.come("open", *told, named)
        return Handle(self)

    def read(self, catalog: Any) -> Any:
        self.come("read", catalog)
        return Target(self)

    def did(self) -> list[Any]:
        found = list(self.log)
        self.log.clear()
        return found

    def shard(self, **more: Any) -> EngineShard:
        held = {name: more.pop(name) for name in ("installed", "run", "incomplete") if name in more}
        settings = Settings(**{"server": "s", "catalog": "C", "deadline": 9.0} | more)
        return EngineShard(settings, wc.Replica("e", 0, 2), self.read, **held)

    def ready(self, **more: Any) -> EngineShard:
        """It has joined, and what that did is forgotten."""
        made = self.shard(**more)
        self.did()
        return made

    def fetched(self, shard: EngineShard, version: int = 3) -> EngineShard:
        shard.fetch(version)
        self.did()
        return shard


class Core:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def wait_changed(self, after: Any, deadline: float) -> Any:
        assert after == (0, 0)
        self.rig.come("runs", deadline)
        return SimpleNamespace(versions=list(self.rig.runs.items()))


class Handle:
    def __init__(self, rig: Rig) -> None:
        self.rig, self._core = rig, Core(rig)

    @property
    def version(self) -> Any:
        return self.rig.holds

    @property
    def epoch(self) -> Any:
        return self.rig.run

    def list(self, **named: Any) -> Any:
        self.rig.come("list", named)
        return self.rig.listed

    def catalog(self, **named: Any) -> Any:
        self.rig.come("catalog", named)
        return "catalog"

    def update(self, version: Any, **named: Any) -> None:
        self.rig.go.wait(SOON)
        self.rig.come("update", version, named)
        self.rig.holds = version if self.rig.brings is None else self.rig.brings

    def __getattr__(self, name: str) -> Any:
        def called(*told: Any, **named: Any) -> None:
            self.rig.come(name, *told, *([named] if named else []))
            if name == "unpublish":
                self.rig.holds = None

        return called


class Target:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    @property
    def always_beside(self) -> bool:
        return self.rig.always

    def layout(self, **named: Any) -> Any:
        self.rig.come("layout", named)
        return "layout"

    def stale(self) -> bool:
        return self.rig.is_stale

    def check(self) -> None:
        self.rig.come("check")

    def finish(self) -> None:
        self.rig.come("finish")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Rig(monkeypatch)
    yield made
    made.go.set()


OPEN = ("open", "policy", wc.Replica("e", 0, 2), {"server": "s", "token_file": None, "job": None, "deadline": 9.0})
WITHIN, LEAVING = {"deadline": 9.0}, {"deadline": 5.0}
CLOSE = ("close", LEAVING)


def read(catalog: str, beside: bool = True) -> list[Any]:
    return [("read", catalog), ("layout", {"stage": True, "beside": beside}), ("register", "layout", WITHIN)]


def brings(version: Any = 3, left: float = 9.0, rollback: bool = False) -> list[Any]:
    return [("wait", wc.condition.available(version), {"deadline": left}), ("update", version, {"deadline": left, "allow_rollback": rollback}), "check"]


def test_joining_reads_the_layout_if_it_is_known_what_will_be_published(rig: Rig) -> None:
    rig.shard(token_file="t", job="j", model="m")
    assert rig.did() == [("open", "m", wc.Replica("e", 0, 2), {"server": "s", "token_file": "t", "job": "j", "deadline": 9.0}), *read("made of C")]
    rig.shard(catalog=None, landing="in_place")
    assert rig.did() == [OPEN, ("list", WITHIN), ("catalog", WITHIN), *read("catalog", False)]
    rig.listed = {}
    shard = rig.shard(catalog=None)
    assert rig.did() == [OPEN, ("list", WITHIN)] and shard.state == EngineState(None, None, None)
    assert (shard.version, shard.replica, type(shard.handle)) == (None, wc.Replica("e", 0, 2), Handle)
    shard = rig.shard(installed=4, run=2, incomplete="half")
    assert shard.state == EngineState(4, None, "half") and shard.version == {"epoch": 2, "number": 4}
    assert rig.shard(installed=4).version is rig.shard(run=4).version is None
    with pytest.raises(wc.WeightcastError, match="^half$"):
        shard.check_serving()
    shard.forget()
    assert shard.state == EngineState(None, None, None) and shard.version is None
    shard.check_serving()


@pytest.mark.parametrize(("step", "after"), [
    ("read", [("refuse", "the layout cannot be read: no", WITHIN), CLOSE]), ("layout", [("refuse", "the layout cannot be read: no", WITHIN), CLOSE]),
    ("register", [CLOSE]),
])
def test_a_worker_that_cannot_join_tells_the_others_and_leaves(rig: Rig, step: str, after: list[Any]) -> None:
    rig.fails = {step: NO, "refuse": wc.Misuse("refused")}
    with pytest.raises(RuntimeError, match="^no$"):
        rig.shard()
    assert rig.did()[-len(after):] == after


def test_an_update(rig: Rig) -> None:
    shard = rig.ready()
    shard.begin()
    assert rig.did() == [("list", LEAVING)]
    shard.fetch(3)
    assert rig.did() == brings() and shard.state == EngineState(None, 3, None) and shard.arrived()
    assert shard.install() == 3 and rig.did() == ["check", "finish"]
    assert shard.state == EngineState(3, None, None) and shard.version == {"epoch": 6, "number": 3} and not shard.arrived()
    assert shard.install() == 3 and rig.did() == [], "asked again"
    shard.spoil("another failed")
    assert shard.state.incomplete == f"another failed: {AGAIN}"
    assert shard.install() == 3 and shard.state.incomplete is None and rig.did() == []
    shard.begin()
    with pytest.raises(wc.Misuse, match="^no version has been fetched; call fetch first$"):
        shard.install()
    shard.fetch("latest", deadline=4.0, allow_rollback=True)
    assert rig.did()[1:] == brings("latest", 4.0, True)
    shard.install()
    shard.fetch(5)
    assert shard.install() == 5, "a fetch begins an update too"
    shard.close()
    assert rig.did()[-1] == CLOSE and shard._thread._shutdown


def test_a_worker_whose_group_has_ended_joins_again(rig: Rig) -> None:
    shard = rig.fetched(rig.ready())
    rig.fails = {"list": wc.GroupBroken("broken")}
    assert not shard.answers()
    rig.did()
    shard.begin()
    assert rig.did() == [("list", LEAVING), CLOSE, OPEN, ("layout", {"stage": True, "beside": True}), ("register", "layout", WITHIN)]
    assert shard.state == EngineState(None, None, None), "what was fetched has gone with the group"
    rig.fails, rig.listed = {}, {}
    late = rig.ready(catalog=None, landing="in_place")
    assert late.answers()
    rig.did()
    rig.fails = {"list": wc.GroupBroken("broken")}
    late.begin()
    assert rig.did() == [("list", LEAVING), CLOSE, OPEN], "its layout is still to be read"
    rig.fails = {"list": NO}
    with pytest.raises(RuntimeError, match="no"):
        late.begin()


@pytest.mark.parametrize(("step", "state"), [
    ("wait", EngineState(4, None, None, "no")), ("update", EngineState(4, None, None, "no")), ("check", EngineState(4, None, None, "no")),
])
def test_a_fetch_that_fails(rig: Rig, step: str, state: EngineState) -> None:
    shard = rig.ready(installed=4)
    rig.fails = {step: NO}
    with pytest.raises(RuntimeError, match="no"):
        shard.fetch(3)
    assert shard.state == state
    with pytest.raises(RuntimeError, match="no"):
        shard.arrived()
    with pytest.raises(wc.Misuse, match="no version has been fetched"):
        shard.install()
    rig.fails = {}
    shard.give_up()
    assert shard.state == EngineState(4, None, None) and not shard.arrived()
    shard.fetch(3)
    assert shard.install() == 3


def test_an_older_version_than_the_one_held_is_not_taken_unasked(rig: Rig) -> None:
    shard, rig.brings = rig.ready(), 5
    with pytest.raises(wc.Misuse) as caught:
        shard.fetch(3)
    assert str(caught.value) == "this engine holds version 5, and 3 is older; fetch with allow_rollback=True to go back"
    shard.fetch("latest")
    assert shard.state.fetched == 5, "whichever that is"


def test_a_version_of_a_run_that_is_over_is_not_waited_for(rig: Rig) -> None:
    shard, rig.runs = rig.ready(installed=2, run=6), {(3, 6): {"t"}, (1, 7): {"e"}, (9, 5): {"t"}}
    said = "version 3 of run 6 was ordered, and there is run 7: another training run of this model has begun"
    with pytest.raises(wc.VersionUnavailable) as caught:
        shard.fetch(3, run=6, deadline=4.0)
    assert str(caught.value) == said and rig.did() == [("runs", 4.0)]
    assert shard.state == EngineState(2, None, None, said) and shard.version == {"epoch": 6, "number": 2}
    shard.fetch(3, run=6, wait=False)
    shard._settled()
    with pytest.raises(wc.VersionUnavailable):
        shard.arrived()
    rig.did()
    for rig.runs in ({}, {(3, 6): {"t"}, (9, 5): {"t"}}):
        shard.fetch(3, run=6, deadline=4.0)
        assert rig.did() == [("runs", 4.0), *brings(3, 4.0)] and shard.state.fetched == 3
    shard.fetch(4, wait=False, run=6)
    assert shard.install() == 4
    placed = rig.ready(landing="in_place", installed=2)
    rig.runs = {(1, 7): {"e"}}
    with pytest.raises(wc.VersionUnavailable):
        placed.fetch(3, run=6)
    placed.check_serving()


def test_a_version_of_a_run_that_begins_while_it_comes_is_not_the_ordered_one(rig: Rig) -> None:
    shard, rig.run = rig.ready(installed=2), 8
    with pytest.raises(wc.VersionUnavailable, match="^version 3 of run 6 was ordered, and there is run 8: another"):
        shard.fetch(3, run=6)
    assert shard.state.fetched is None and shard.state.failed and ("update", 3, {"deadline": 9.0, "allow_rollback": False}) in rig.did()
    shard.fetch(3)
    assert shard.state.fetched == 3, "whichever run's"


def test_bytes_that_land_in_place(rig: Rig) -> None:
    shard = rig.ready(landing="in_place")
    with pytest.raises(wc.Misuse) as caught:
        shard.fetch(3, wait=False)
    assert str(caught.value) == ("bytes that land in place change the parameters: pause the engine and fetch with wait=True, or set landing='staged'")
    assert rig.did() == []
    rig.fails = {"wait": NO}
    with pytest.raises(RuntimeError):
        shard.fetch(3)
    assert shard.state.incomplete == f"version 3 was being fetched into the parameters: {AGAIN}"
    rig.fails = {}
    shard.fetch(3)
    assert shard.state.incomplete and shard.install() == 3 and shard.state.incomplete is None
    rig.always = True
    shard.fetch(4, wait=False)
    assert shard.install() == 4, "of what always lies beside"


def test_a_fetch_in_the_background(rig: Rig) -> None:
    shard = rig.ready()
    rig.go.clear()
    shard.fetch(3, wait=False, deadline=4.0)
    assert shard.state == EngineState(None, None, None) and not shard.arrived()
    rig.go.set()
    assert shard.install() == 3, "which waits for it"
    assert rig.did() == [*brings(3, 4.0), "check", "finish"]
    rig.fails = {"update": NO}
    shard.fetch(4, wait=False)
    with pytest.raises(RuntimeError, match="^no$"):
        shard.install()
    assert shard.state == EngineState(3, None, None, "no")
    with pytest.raises(wc.Misuse, match="no version has been fetched"):
        shard.install()


def test_a_fetch_that_was_followed_or_given_up_says_nothing_of_itself(rig: Rig) -> None:
    shard = rig.ready()
    rig.go.clear()
    shard.fetch(3, wait=False)
    shard.give_up()
    rig.go.set()
    shard._settled()
    assert shard.state == EngineState(None, None, None)
    rig.go.clear()
    rig.fails = {"update": NO}
    shard.fetch(3, wait=False)
    shard.give_up()
    rig.go.set()
    shard._settled()
    assert shard.state == EngineState(None, None, None) and not shard.arrived()
    rig.go.clear()
    shard.fetch(3, wait=False)
    rig.go.set()
    with pytest.raises(RuntimeError):
        shard.fetch(4)
    rig.fails = {}
    shard.fetch(5, wait=False)
    shard.fetch(6)
    assert shard.state == EngineState(None, 6, None) and [one[1] for one in rig.did() if one[0] == "update"] == [3, 3, 3, 4, 5, 6]


def test_a_layout_that_does_not_fit_any_more_is_read_anew_before_a_fetch(rig: Rig) -> None:
    shard = rig.fetched(rig.ready())
    rig.is_stale = True
    real, shard._read = shard._read, lambda catalog: [setattr(rig, "is_stale", False), real(catalog)][1]
    shard.fetch(4, deadline=4.0)
    again = [("unpublish", WITHIN), ("unregister", WITHIN), ("catalog", {"deadline": 4.0}), *read("catalog")[:2], ("register", "layout", {"deadline": 4.0})]
    assert rig.did() == [*again, *brings(4, 4.0)]
    rig.is_stale, rig.holds = True, None
    shard.read_layout(4.0)
    assert rig.did() == again[1:], "it holds nothing"
    shard.read_layout(4.0)
    assert rig.did() == []
    rig.listed = {}
    late = rig.ready(catalog=None)
    rig.clock[0] = 100.0
    late.read_layout(4.0)
    assert rig.did() == again[2:]


def test_time_that_has_passed_counts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.listed = {}
    shard = rig.ready(catalog=None)

    def slow(catalog: Any) -> Any:
        rig.clock[0] += 3.0
        return rig.read(catalog)

    shard._read = slow
    shard.fetch(3, deadline=4.0)
    assert rig.did()[-3:] == brings(3, 1.0)
    shard._live = None
    shard.fetch(3, deadline=2.0)
    assert rig.did()[-3:] == brings(3, 0.0), "and never less than nothing"


@pytest.mark.parametrize("step", ["check", "finish"])
def test_an_install_that_fails(rig: Rig, step: str) -> None:
    shard = rig.fetched(rig.ready(installed=2, run=6))
    rig.fails = {step: NO}
    with pytest.raises(RuntimeError, match="no"):
        shard.install()
    why = None if step == "check" else f"version 3 was being installed: {AGAIN}"
    assert shard.state == EngineState(2, 3, why) and shard.version == {"epoch": 6, "number": 2}
    rig.fails = {}
    assert shard.install() == 3 and shard.state == EngineState(3, None, None)


def test_memory_that_goes_for_a_while(rig: Rig) -> None:
    shard = rig.fetched(rig.ready(landing="in_place"))
    shard.install()
    rig.did()
    shard.withdraw()
    assert rig.did() == [("unpublish", WITHIN), ("unregister", WITHIN)]
    shard.withdraw()
    assert rig.did() == []
    shard.fetch(4)
    assert rig.did()[:2] == [("catalog", WITHIN), ("read", "catalog")]
    staged = rig.fetched(rig.ready())
    staged.withdraw()
    assert rig.did() == [] and staged.state.fetched == 3, "what lies beside stays"


def test_weights_that_were_discarded(rig: Rig) -> None:
    shard = rig.ready()
    shard.discard()
    gone = f"the engine slept and discarded its weights: {AGAIN}"
    assert shard.state == EngineState(None, None, gone)
    shard.restore()
    assert rig.did() == [] and shard.state.incomplete == gone
    rig.fetched(shard)
    shard.install()
    rig.did()
    shard.restore()
    assert rig.did() == [], "nothing is missing"
    shard.discard()
    assert shard.state == EngineState(3, 3, gone)
    rig.is_stale = True
    shard.restore()
    assert rig.did() == [] and shard.state.incomplete == gone, "the parameters are others"
    rig.is_stale = False
    shard.restore()
    assert rig.did() == ["check", "finish"] and shard.state == EngineState(3, None, None)
    rig.fetched(shard, 4)
    shard.discard()
    assert shard.state == EngineState(3, None, gone), "4 was never ordered"
    waking = rig.fetched(rig.ready(installed=2))
    waking.restore()
    assert rig.did() == [] and waking.state == EngineState(2, 3, None), "nobody has ordered its install"
    waking.spoil("another failed")
    waking._live = None
    waking.restore()
    assert rig.did() == [], "its layout is still to be read"
    placed = rig.fetched(rig.ready(landing="in_place"))
    placed.install()
    rig.did()
    placed.discard()
    assert placed.state == EngineState(3, None, gone) and rig.did() == [("unpublish", WITHIN), ("unregister", WITHIN)]
    placed.restore()
    assert rig.did() == []


@pytest.mark.parametrize("call", ["withdraw", "discard", "_reopen", "_lay_off"])
def test_memory_does_not_go_while_a_fetch_writes_into_it(rig: Rig, call: str) -> None:
    shard = rig.ready()
    ended: list[Any] = []
    rig.go.clear()
    shard.fetch(3, wait=False)
    shard._fetching.add_done_callback(lambda _: ended.append(list(rig.log)))
    module.wait_for, former = lambda futures: [rig.go.set(), former(futures)], module.wait_for
    try:
        getattr(shard, call)()
    finally:
        module.wait_for = former
    assert ended and ended[0] == brings(), "all else came after"
    assert shard._fetching is None


def test_closing_waits_for_nobody(rig: Rig) -> None:
    shard = rig.ready()
    rig.go.clear()
    shard.fetch(3, wait=False)
    shard.close()
    assert rig.did()[-1] == CLOSE


def test_settings() -> None:
    for wrong, said in (
        ({"landing": "here"}, "landing is one of staged, in_place, not 'here'"),
        ({"draft": "updated"}, "draft is 'stale', or a prefix of names that ends in a dot, not 'updated'"),
        ({"deadline": 0.0}, "deadline is a number of seconds above 0, not 0.0"),
    ):
        with pytest.raises(wc.Misuse) as caught:
            Settings(**wrong)
        assert str(caught.value) == said
    for right in ({"draft": "stale"}, {"draft": "draft."}, {"landing": "in_place"}, {"deadline": 0.1}):
        Settings(**right)
    assert Settings().reading() == {"unused": {}, "unsourced": {}, "rename": None}
    for named in (Settings(prefix="p."), Settings(unused={"p.x*": "why"}), Settings(prefix="p.", unused={"y*": "why"})):
        assert named.reading()["rename"] == named.known_name
    plain = Settings(prefix="p.", unused={"p.x*": "why", "y*": "why"}, unsourced={"z": "why"})
    assert [plain.known_name(name) for name in ("p.a", "a", "p.x1", "p.y", "x")] == ["a", "a", None, None, "x"]
    assert plain.reading()["unsourced"] == {"z": "why"} and plain.reading()["unused"] == plain.unused
    assert Settings(address="a") == Settings(address="b") and Settings(server="a") != Settings(server="b"), "where it is, is no other job"


