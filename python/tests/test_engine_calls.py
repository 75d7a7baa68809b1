"""What engines are asked when their trainer updates them by plain calls, in which order, and what a failure at each step leaves."""

from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import EngineState

torch = pytest.importorskip("torch")

from weightcast.adapters.engine import engines as module  # noqa: E402
from weightcast.adapters.engine.engines import Engines  # noqa: E402

OLD, NEW = EngineState(1, None, None), EngineState(2, None, None)
FETCHED = EngineState(1, 2, None)
CUT = EngineState(1, 2, "half")
DOWN = RuntimeError("states fail")


class Bare:
    """An engine with the methods of vLLM's own client alone. What it is asked goes into a list that all share. `fails`
    says what a call raises: an error each time, or one of a list at a time."""

    base_url = "http://e"

    def __init__(self, log: list[tuple[Any, ...]] | None = None, **fails: Any) -> None:
        self.log, self.fails = [] if log is None else log, fails

    def come(self, step: str, *told: Any) -> None:
        self.log.append((step, *told))
        found = self.fails.get(step)
        if isinstance(found, list):
            found = found.pop(0) if found else None
        if found is not None:
            raise found

    def init_weight_transfer_engine(self, settings: Any) -> None:
        self.come("join", settings)

    def start_weight_update(self) -> None:
        self.come("begin")

    def update_weights(self, info: Any) -> None:
        self.come("abandon" if info == {"abandon": True} else "fetch", *([] if info == {"abandon": True} else [info]))

    def finish_weight_update(self, version: Any) -> None:
        self.come("install", version)


class Client(Bare):
    """With all that ours have. `says` is what its workers hold, question by question; the last answer stays."""

    looks = (0.0, 0.0)

    def __init__(self, log: list[tuple[Any, ...]] | None = None, says: Any = ((FETCHED,),), **fails: Any) -> None:
        super().__init__(log, **fails)
        self.says = list(says)

    def states(self) -> list[EngineState]:
        self.come("states")
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        return list(said)

    def take(self, holder: str, seconds: float) -> None:
        self.come("take", holder, seconds)

    def give_back(self, holder: str) -> None:
        self.come("give back", holder)

    def pause(self, mode: str) -> None:
        self.come("pause", mode)

    def resume(self) -> None:
        self.come("resume")

    def stamp(self, version: str) -> None:
        self.come("stamp", version)


def fetch(wait: bool = False, deadline: float = 2.0) -> tuple[Any, ...]:
    return "fetch", {"version": 2, "wait": wait, "deadline": deadline}


TAKE, BACK = ("take", "me", 8.0), ("give back", "me")
BEGIN, STATES, PAUSE, RESUME = ("begin",), ("states",), ("pause", "abort"), ("resume",)
INSTALL, STAMP, ABANDON = ("install", "2"), ("stamp", "2"), ("abandon",)
BEFORE = [BEGIN, fetch(), STATES, TAKE, PAUSE]
NO = RuntimeError("no")


def update(client: Bare, staged: bool = True) -> None:
    Engines([client], "me").update(2, staged=staged, pause="abort", deadline=2.0)


COURSES: dict[str, tuple[Bare, list[tuple[Any, ...]], str | None]] = {
    "all goes well": (Client(), [*BEFORE, INSTALL, RESUME, BACK], None),
    "it is fetched later": (Client(says=[[], [OLD], [FETCHED, OLD], [FETCHED, FETCHED]]),
                            [BEGIN, fetch(), *[STATES] * 4, TAKE, PAUSE, INSTALL, RESUME, BACK], None),
    "an update was left open": (Client(begin=[NO]), [BEGIN, ABANDON, *BEFORE, INSTALL, RESUME, BACK], None),
    "what is abandoned says so": (Client(begin=[NO], abandon=NO), [BEGIN, ABANDON, *BEFORE, INSTALL, RESUME, BACK], None),
    "it does not begin": (Client(begin=NO), [BEGIN, ABANDON, BEGIN], "no"),
    "it does not fetch": (Client(fetch=NO), [BEGIN, fetch(), ABANDON], "no"),
    "a worker does not fetch": (Client(says=[[FETCHED, EngineState(1, None, None, "why")]]), [BEGIN, fetch(), STATES, ABANDON],
                                "http://e: version 2 was not fetched: why"),
    "it is another's turn": (Client(take=NO), [BEGIN, fetch(), STATES, TAKE, BACK, ABANDON], "no"),
    "nor can that be given back": (Client(take=NO, **{"give back": NO}), [BEGIN, fetch(), STATES, TAKE, BACK, ABANDON], "no"),
    "it does not pause": (Client(pause=NO), [*BEFORE, ABANDON, RESUME, BACK], "no"),
    "nor goes on": (Client(pause=NO, resume=DOWN), [*BEFORE, ABANDON, RESUME], "no"),
    "an install is repeated": (Client(install=[NO]), [*BEFORE, INSTALL, INSTALL, RESUME, BACK], None),
    "its answer is lost": (Client(says=[[FETCHED], [NEW, NEW]], install=NO), [*BEFORE, INSTALL, INSTALL, STATES, STAMP, RESUME, BACK], None),
    "and it is not stamped": (Client(says=[[FETCHED], [NEW]], install=NO, stamp=DOWN),
                              [*BEFORE, INSTALL, INSTALL, STATES, STAMP, STATES, RESUME, BACK], "of 1 engines,.*: http://e: states fail$"),
    "it keeps what it has": (Client(says=[[FETCHED], [OLD]], install=NO), [*BEFORE, INSTALL, INSTALL, STATES, STATES, RESUME, BACK],
                             r"^version 2 was not installed by 1 of 1 engines, which stay paused if their weights are "
                             "incomplete or others went on: http://e: no$"),
    "it holds half": (Client(says=[[FETCHED], [FETCHED, CUT]], install=NO), [*BEFORE, INSTALL, INSTALL, STATES, STATES], "http://e: no"),
    "its workers differ": (Client(says=[[FETCHED], [OLD, NEW]], install=NO), [*BEFORE, INSTALL, INSTALL, STATES, STATES], "http://e: no"),
    "it does not say": (Client(says=[[FETCHED], DOWN], install=NO), [*BEFORE, INSTALL, INSTALL, STATES, STATES], "http://e: no"),
    "it has no workers": (Client(says=[[FETCHED], []], install=NO), [*BEFORE, INSTALL, INSTALL, STATES, STATES], "http://e: no"),
    "it is not resumed": (Client(resume=NO), [*BEFORE, INSTALL, RESUME], "installed by 1 of 1 engines.*: http://e: no$"),
    "a turn is not given back": (Client(**{"give back": NO}), [*BEFORE, INSTALL, RESUME, BACK], None),
    "vLLM's own client": (Bare(), [BEGIN, fetch(True), INSTALL], None),
}


@pytest.mark.parametrize(("client", "calls", "error"), COURSES.values(), ids=[*COURSES])
def test_the_course_of_an_update(client: Bare, calls: list[tuple[Any, ...]], error: str | None) -> None:
    if error is None:
        update(client)
    else:
        with pytest.raises((RuntimeError, wc.WeightcastError), match=error):
            update(client)
    assert client.log == calls


IN_PLACE: dict[str, tuple[Client, list[tuple[Any, ...]]]] = {
    "all goes well": (Client(), [BEGIN, TAKE, PAUSE, fetch(True), INSTALL, RESUME, BACK]),
    "a fetch leaves it empty": (Client(fetch=NO), [BEGIN, TAKE, PAUSE, fetch(True)]),
}


@pytest.mark.parametrize(("client", "calls"), IN_PLACE.values(), ids=[*IN_PLACE])
def test_bytes_that_land_in_place_come_in_a_pause(client: Client, calls: list[tuple[Any, ...]]) -> None:
    if client.fails:
        with pytest.raises(RuntimeError, match="no"):
            update(client, staged=False)
    else:
        update(client, staged=False)
    assert client.log == calls


def test_a_fetch_that_takes_too_long_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, naps = [0.0], []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module.time, "sleep", sleep)
    client = Client(says=[[OLD]])
    client.looks = (0.25, 1.0)
    with pytest.raises(wc.WeightcastError) as caught:
        Engines([client]).fetch(2, deadline=3.75)
    assert str(caught.value) == (
        "http://e: version 2 was not fetched within 4 s; `weightcast why` tells what its replica waits for"
    )
    assert naps == [0.25, 0.5, 1.0, 1.0, 1.0, 1.0], "not before the deadline has passed"
    del Client.looks
    naps.clear()
    with pytest.raises(wc.WeightcastError):
        Engines([Client(says=[[OLD]])]).fetch(2, deadline=0.3)
    Client.looks = (0.0, 0.0)
    assert naps[:8] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1]


@pytest.mark.parametrize("step", ["begin", "fetch", "take", "pause"])
def test_one_engine_that_fails_before_anything_changed_has_all_go_on(step: str) -> None:
    clients = [Client(), Client(**{step: NO}), Client()]
    with pytest.raises(RuntimeError, match="no"):
        Engines(clients, "me").update(2, staged=True, pause="abort", deadline=2.0)
    for client in clients:
        names = [one[0] for one in client.log]
        assert "install" not in names
        assert ("abandon" in names) == (step != "begin" or client is clients[1])
        assert names.count("resume") == (step == "pause") and names.count("give back") == (step in ("take", "pause"))


def test_engines_that_have_installed_go_on_without_the_others() -> None:
    log: list[tuple[Any, ...]] = []
    good, bad, other = Client(), Client(install=NO, says=[[FETCHED], [OLD]]), Client()
    good.base_url, bad.base_url = "http://good", "http://bad"
    with pytest.raises(wc.WeightcastError, match="by 1 of 3 engines.*: http://bad: no$"):
        Engines([good, bad, other]).update(2, staged=True, pause="abort", deadline=2.0)
    assert good.log[-2:] == other.log[-2:] == [RESUME, ("give back", "trainer")]
    assert RESUME not in bad.log and bad.log[-1] == STATES, "it stays paused"
    stuck = Client(log, resume=NO)
    stuck.base_url = "http://stuck"
    with pytest.raises(wc.WeightcastError, match="by 2 of 3 engines.*: http://bad: no; http://stuck: no$"):
        Engines([stuck, bad, good]).install(2)


@pytest.mark.parametrize(("says", "go_on"), [([[OLD], [OLD]], True), ([[OLD], [NEW]], False), ([[OLD], [CUT]], False)])
def test_engines_of_which_none_has_installed_go_on_if_they_are_alike(says: Any, go_on: bool) -> None:
    clients = [Client(says=[one], install=NO) for one in says]
    with pytest.raises(wc.WeightcastError, match="by 2 of 2 engines"):
        Engines(clients).install(3)
    assert [RESUME in client.log for client in clients] == [go_on, go_on]


def test_joining() -> None:
    clients = [Bare(), Bare()]
    Engines(clients).join({"model": "m"})
    assert [client.log for client in clients] == [[("join", {"model": "m"})]] * 2
    with pytest.raises(wc.Misuse, match="^no engine to update; give at least one client$"):
        Engines([])
