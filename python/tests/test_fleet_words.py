"""What a fleet does for each word of its driver, what it hands to the driver, and what it says of each end."""

import itertools
import json
import queue
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from weightcast.adapters.engine import fleet as module  # noqa: E402
from weightcast.adapters.engine.fleet import Fleet, FleetReport  # noqa: E402

SOON = 20.0
TWO = {"epoch": 5, "number": 2}
NEW = {"serving": True, "state": {"New": TWO}, "failure": None}


def outcome(serving: bool, state: str, failure: Any = None) -> Any:
    return {"serving": serving, "state": {state: TWO}, "failure": failure}


class Line:
    """`EngineLine`."""

    def __init__(self, log: list[Any], number: int, client: Any, tell: Any, *more: Any) -> None:
        self.log, self.number, self.client, self.tell, self.more = log, number, client, tell, more
        self.name, self.error = f"e{number}", None

    def count(self) -> None: ...

    def known(self) -> int:
        return self.client

    def times(self, outcome: Any) -> Any:
        return self.number, outcome

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *told: self.log.append((f"e{self.number} {name}", *told))


class Driver:
    """`FleetDriver`: says what a test has it say, one list for each time that it is asked until it has nothing more."""

    def __init__(self, log: list[Any], config: Any) -> None:
        self.log, self.config, self.says, self.idle, self.due = log, json.loads(config), [], True, None

    def is_idle(self) -> bool:
        return self.idle

    def bring(self, now: int, version: Any, workers: Any) -> None:
        self.log.append(("bring", version and json.loads(version), workers))

    def poll_output(self) -> Any:
        said = self.says[0].pop(0) if self.says[0] else None
        if said is None:
            self.says.pop(0)
        return said if said is None else json.dumps(said)

    def next_timeout(self) -> Any:
        return self.due

    def handle(self, now: int, event: str) -> None:
        self.log.append(("told", json.loads(event)))

    def handle_timeout(self, now: int) -> None:
        self.log.append(("time is up", now))


class Rig:
    """A fleet of three engines with 1, 2 and 3 workers, and the log of all that is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        self.drivers: list[Driver] = []
        monkeypatch.setattr(module, "EngineLine", lambda *told: Line(self.log, *told))
        monkeypatch.setattr(module, "_core", SimpleNamespace(FleetDriver=self.driver, WeightcastError=wc.WeightcastError))
        self.bits = itertools.count(1)
        monkeypatch.setattr(module.secrets, "randbits", lambda bits: bits * 1000 + next(self.bits))
        self.asked: list[Any] = []
        self.fleet = Fleet([1, 2, 3], self.ask, "settings", holder="me", pause="keep", deadline=2.0)

    def driver(self, config: Any) -> Driver:
        self.drivers.append(Driver(self.log, config))
        return self.drivers[-1]

    def ask(self, question: str, deadline: float) -> str:
        self.asked.append((json.loads(question), deadline))
        return json.dumps("answer")

    def bring(self, *says: Any, version: Any = TWO) -> FleetReport:
        self.drivers[-1].says = [list(one) for one in says]
        self.log.clear()
        return self.fleet.bring(version)

    def update(self, *says: Any) -> None:
        self.drivers[-1].says = [list(one) for one in says]
        self.fleet.update(TWO)

    def between(self) -> list[Any]:
        """Without what begins and ends each update."""
        ends = [f"e{n} {what}" for n in range(3) for what in ("begin", "rest")]
        return [one for one in self.log if one[0] not in ends]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Rig(monkeypatch)
    yield made
    made.fleet.close()


def result(end: str, engines: Any, version: Any = TWO) -> Any:
    return {"Fleet": {"version": version, "result": {"end": end, "engines": engines}}}


DONE = {"Ended": "Done"}
ALL = {"0": NEW, "1": NEW, "2": NEW}


def test_a_fleet_has_lines_to_its_engines_and_a_driver_of_its_own(rig: Rig) -> None:
    lines = rig.fleet._lines
    assert [(line.number, line.client, line.more) for line in lines.values()] == [
        (n, n + 1, ("settings", "me", "keep", 24.0)) for n in range(3)
    ]
    span = 2_000_000_000
    assert rig.drivers[0].config == {
        "fleet": True, "means": "Staged", "mode": {"Keep": {"mixed": False}}, "prefetch": True,
        "deadlines": {"bytes": span, "pause": span, "parameters": span, "word": span}, "retries": 1, "prepare": 2 * span,
        "decide": span, "reach": span, "ask_every": 500_000_000, "safeguards": 0, "key": 63001,
    }
    modes = {"abort": "Abort", "wait": "Wait", "in_place": {"Keep": {"mixed": True}}, "retract": "Abort"}
    assert {pause: module._config(pause, 1.0)["mode"] for pause in modes} == modes


def test_words_of_the_driver(rig: Rig) -> None:
    order = {"attempt": 1}
    report = rig.bring(
        [{"Run": {"engine": 1, "order": order}}, {"Run": {"engine": 2, "order": order}}, {"Abandon": {"engine": 2, "order": order}},
         {"Apart": {"engine": 0, "outcome": "apart"}}, result("Aborted", {"1": "other"}, {"epoch": 5, "number": 1}),
         result("Committed", {"1": "one", "2": "two"}), DONE],
    )
    begins, rests = [(f"e{n} begin",) for n in range(3)], [(f"e{n} rest",) for n in range(3)]
    assert rig.log == [*begins, ("bring", TWO, {0: 1, 1: 2, 2: 3}), ("e1 bring", order), ("e2 bring", order), ("e2 abandon", order), *rests]
    assert report == FleetReport("Committed", {0: "apart", 1: "one", 2: "two"}, set(), False), "of this version alone"
    report = rig.bring([{"Ended": "NobodyAwake"}], version=None)
    assert rig.between() == [("bring", None, {0: 1, 1: 2, 2: 3})]
    assert report == FleetReport(None, {}, set(), True)


def lost(engine: int) -> Any:
    return {"Engine": {"engine": engine, "input": "Lost"}}


def test_what_happens_is_handed_to_the_driver(rig: Rig) -> None:
    rig.fleet._events.put("of an earlier update")
    events = [{"Engine": {"engine": 1, "input": {"Answered": {}}}}, lost(1), {"Register": {}}]
    bring, rig.fleet._driver.bring = rig.fleet._driver.bring, lambda *told: [bring(*told), *map(rig.fleet._events.put, events)]
    report = rig.bring([], [], [], [DONE])
    assert rig.between()[1:] == [("told", event) for event in events]
    assert report.dead == rig.fleet.dead == {1}
    assert rig.bring([DONE]).dead == rig.fleet.dead == set(), "none of this update"


def test_the_driver_is_told_when_its_time_is_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_now", lambda: 5_000_000_000)
    waits: list[Any] = []

    def get(timeout: float | None) -> Any:
        waits.append(timeout)
        if timeout is None:
            return lost(0)
        raise queue.Empty

    rig.fleet._events = SimpleNamespace(get=get, empty=lambda: True)
    for due in (6_500_000_000, 4_000_000_000, None):
        rig.drivers[0].due = due
        rig.bring([], [DONE])
        assert rig.between()[1:] == [("told", lost(0)) if due is None else ("time is up", 5_000_000_000)]
    assert waits == [1.5, 0.0, None]


def test_an_update_that_takes_too_long_is_cancelled(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    def wait(report: Any) -> None:
        clock[0] += 48.0

    monkeypatch.setattr(rig.fleet, "_wait", wait)
    with pytest.raises(wc.WeightcastError, match="^the update took too long, and was given up before anything changed$"):
        rig.bring([], [], [], [{"Ended": "Cancelled"}])
    assert rig.between()[1:] == [("told", "Cancel")], "beyond 48 times a step's deadline, not at them"


def test_the_register_is_asked_beside(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.fleet._ask_register({"question": 1})
    assert rig.asked == [({"question": 1}, 5.0)]
    assert rig.fleet._events.get(timeout=SOON) == {"Register": {"asked": {"question": 1}, "answer": "answer"}}
    rig.bring([{"Ask": "State"}], [DONE])
    assert rig.between()[1:] == [("told", {"Register": {"asked": "State", "answer": "answer"}})]

    def away(*_: Any) -> str:
        raise wc.ServerUnreachable("away")

    rig.fleet._ask = away
    with caplog.at_level("INFO"):
        rig.fleet._ask_register("State")
    assert rig.fleet._events.empty() and "the register of the fleet does not answer: away" in caplog.text


def test_a_driver_that_was_interrupted_has_a_successor(rig: Rig) -> None:
    rig.bring([DONE])
    assert len(rig.drivers) == 1
    rig.drivers[0].idle = False
    made = rig.driver

    def successor(config: Any) -> Driver:
        driver = made(config)
        driver.says = [[DONE]]
        return driver

    module._core.FleetDriver = successor
    rig.fleet.bring(None)
    assert [driver.config["key"] for driver in rig.drivers] == [63001, 63002] and rig.log[-4][0] == "bring"


ENDS = {
    "Superseded": "another trainer drives these engines now; stop that one, or start this one anew",
    "RegisterAway": "the reference server does not answer, so nobody knows which version counts: engines that stand still go on with the next "
    "update that reaches it",
    "Cancelled": "the update took too long, and was given up before anything changed",
}


def test_ends_that_are_errors(rig: Rig) -> None:
    for end, said in ENDS.items():
        with pytest.raises(wc.WeightcastError) as caught:
            rig.bring([{"Ended": end}])
        assert str(caught.value) == said and rig.log[-1] == ("e2 rest",)
    rig.fleet._lines[0].error, rig.fleet._lines[2].error = "no answer", "refused"
    with pytest.raises(wc.WeightcastError) as caught:
        rig.bring([{"Ended": {"OutOfReach": {"engines": [2, 0]}}}])
    assert str(caught.value) == (
        "nothing was begun, since e0, e2 may serve and does not answer; restart or remove the engine: e2: refused; e0: no answer"
    )


def test_a_fleet_whose_engines_are_all_dead(rig: Rig) -> None:
    bring = rig.fleet._driver.bring
    rig.fleet._driver.bring = lambda *told: [bring(*told), *(rig.fleet._events.put(lost(n)) for n in range(3))]
    for line in rig.fleet._lines.values():
        line.error = "gone"
    with pytest.raises(wc.WeightcastError, match="^all engines are dead: e0: gone; e1: gone; e2: gone$"):
        rig.bring([], [], [], [DONE])


FAILED = "version 2 was not installed by {} of 3 engines, which are dead or asleep, or stay paused until an update succeeds: {}"
GIVEN_UP = "version 2 was given up, and engines go on with what they served: {}"
ABORTED = outcome(True, "Old", ["Fetch", "Aborted"])
HALF = outcome(False, "Torn", ["Install", {"Engine": "Engine"}])
SLEEPS = "it sleeps; wake it up, and send the version again"
UPDATES: dict[str, tuple[Any, list[int], set[int], str | None]] = {
    "all have it": ([result("Committed", ALL), DONE], [], set(), None),
    "they had it": ([DONE], [], set(), None),
    "one fails": ([result("Committed", ALL | {"1": HALF}), DONE], [], set(), FAILED.format(1, "e1: Install: Engine")),
    "one does not serve": ([result("Committed", ALL | {"1": outcome(False, "New")}), DONE], [], set(), FAILED.format(1, "e1: no error is known")),
    "one serves the old one": ([result("Committed", ALL | {"1": outcome(True, "Old", ["Install", "Layouts"])}), DONE], [], set(),
                               FAILED.format(1, "e1: Install: Layouts")),
    "two do": ([result("Committed", ALL | {"2": HALF, "0": HALF}), DONE], [], set(), FAILED.format(2, "e0: Install: Engine; e2: Install: Engine")),
    "one went back with the others": ([result("Committed", ALL | {"1": ABORTED}), DONE], [], set(), None),
    "and stands still": ([result("Committed", ALL | {"1": ABORTED | {"serving": False}}), DONE], [], set(), FAILED.format(1, "e1: Fetch: Aborted")),
    "one sleeps": ([result("Committed", {"0": NEW, "2": NEW}), DONE], [], set(), FAILED.format(1, f"e1: {SLEEPS}")),
    "all sleep": ([{"Ended": "NobodyAwake"}], [], set(), FAILED.format(3, f"e0: {SLEEPS}; e1: {SLEEPS}; e2: {SLEEPS}")),
    "one is apart": ([{"Apart": {"engine": 1, "outcome": HALF}}, DONE], [], set(), FAILED.format(1, "e1: Install: Engine")),
    "one dies": ([result("Committed", {"0": NEW, "2": NEW}), DONE], [1], set(), FAILED.format(1, f"e1: {SLEEPS}")),
    "one was dead": ([result("Committed", {"0": NEW, "2": NEW}), DONE], [1], {1}, None),
    "one dies as the fleet has it": ([DONE], [1], set(), FAILED.format(1, f"e1: {SLEEPS}")),
    "it is given up": ([result("Aborted", {"0": ABORTED, "1": outcome(True, "Old", ["Fetch", "Source"]), "2": ABORTED}), DONE], [], set(),
                       GIVEN_UP.format("e1: Fetch: Source")),
    "by all": ([result("Aborted", {"0": ABORTED, "1": ABORTED, "2": ABORTED}), DONE], [], set(),
               GIVEN_UP.format("e0: Fetch: Aborted; e1: Fetch: Aborted; e2: Fetch: Aborted")),
}


@pytest.mark.parametrize(("says", "die", "known", "error"), UPDATES.values(), ids=[*UPDATES])
def test_what_is_said_of_an_update(rig: Rig, caplog: pytest.LogCaptureFixture, says: Any, die: list[int], known: set[int], error: str | None) -> None:
    bring = rig.fleet._driver.bring
    rig.fleet._driver.bring = lambda *told: [bring(*told), *(rig.fleet._events.put(lost(n)) for n in die)]
    rig.fleet.dead = known
    if error is None:
        rig.update(*([[]] * len(die)), says)
        assert ("dead, and left out of version 2: e1" in caplog.text) == ("dead" in caplog.text) == bool(die)
    else:
        with pytest.raises(wc.WeightcastError) as caught:
            rig.update(*([[]] * len(die)), says)
        assert str(caught.value) == error
    assert rig.fleet.dead == set(die)


def test_what_a_line_heard_last_is_told_before_the_drivers_own_word(rig: Rig) -> None:
    rig.fleet._lines[1].error = "no room"
    with pytest.raises(wc.WeightcastError, match=r"succeeds: e1: no room$"):
        rig.update([result("Committed", ALL | {"1": HALF}), DONE])


def test_closing_ends_all_lines(rig: Rig) -> None:
    rig.fleet.close()
    assert rig.log == [(f"e{n} close",) for n in range(3)]
