"""What a worker does for each order of a fleet's driver, and what the line to an engine makes of its workers' answers."""

import itertools
import json
import queue
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from weightcast.adapters.engine import EngineState, line  # noqa: E402
from weightcast.adapters.engine import orders as module  # noqa: E402
from weightcast.adapters.engine.http import Gone  # noqa: E402
from weightcast.adapters.engine.line import EngineLine  # noqa: E402
from weightcast.adapters.engine.orders import Orders, failure_of  # noqa: E402

SOON = 20.0
LIFE = 7
ONE, TWO = {"epoch": 5, "number": 1}, {"epoch": 5, "number": 2}


class Core:
    """The register: no driver has come yet."""

    driver = 0

    def __init__(self) -> None:
        self.asked: list[tuple[Any, float]] = []

    def ask_fleet(self, question: str, deadline: float) -> str:
        self.asked.append((json.loads(question), deadline))
        if isinstance(self.driver, Exception):
            raise self.driver
        return json.dumps({"driver": self.driver})


class Notices:
    """Notes what routers would be told."""

    def __init__(self, ask: Any, *who: Any) -> None:
        self.ask, self.who, self.said = ask, who, []

    def say(self, life: int, serves: Any) -> None:
        self.said.append((life, serves))

    def close(self) -> None:
        self.said.append("closed")


class Worker:
    """A host and its shard: notes what is asked of both. `fails` says what a call raises."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.fails: dict[str, Exception] = {}
        self.handle = SimpleNamespace(_core=Core(), epoch=5)
        self.settings = SimpleNamespace(address=None)
        self.replica = wc.Replica("e", 1, 3)
        self.state, self.version = EngineState(1, None, None), ONE
        self.come = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def called(*arguments: Any, **named: Any) -> None:
            self.did.append((name, *arguments, named) if named else (name, *arguments) if arguments else name)
            if name in self.fails:
                raise self.fails[name]

        return called

    def shard(self) -> "Worker":
        return self

    def arrived(self) -> bool:
        self.did.append("arrived")
        if "arrived" in self.fails:
            raise self.fails["arrived"]
        return self.come


@pytest.fixture(autouse=True)
def notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Notices", Notices)


_numbers = itertools.count(1)


def ordered(step: str, means: str = "Staged", version: Any = TWO, **more: Any) -> dict[str, Any]:
    return {
        "attempt": {"driver": 9, "round": 1, "by_itself": False, "number": next(_numbers)},
        "life": LIFE, "step": step, "version": version, "old": ONE, "means": means, "keep_caches": False,
        "deadline": 1_500_000_000, "transaction": None,
    } | more


def said(orders: Orders, order: Any) -> Any:
    """What is said: the answer (twice where a fetch has just ended), whether the engine has to take the step, and the error."""
    found = orders.order(order)
    answers = [(a["attempt"] == order["attempt"], a["answer"]) for a in found["answers"]]
    if len(answers) == 2:
        assert answers.pop() == answers[0]
    return answers, found["perform"] and found["perform"] == order["attempt"], found["error"]


DONE, UNDER_WAY, ASKED = ([(True, "Done")], None, None), ([], None, None), ([], True, None)


def failed(why: str, what: str) -> Any:
    return [(True, {"Failed": what})], None, why


def staged(worker: Worker, orders: Orders) -> None:
    """It has a version beside what it holds, and stands still."""
    said(orders, ordered("Negotiate"))
    said(orders, ordered("Fetch"))
    order = ordered("Pause")
    orders.order(order)
    orders.performed(order["attempt"], None)
    said(orders, ordered("Begin"))
    worker.did.clear()


def test_what_a_worker_does_in_an_update_of_its_fleet() -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    assert orders.life == LIFE and orders.may_serve()
    assert said(orders, ordered("Negotiate")) == DONE
    assert worker.did == ["before_fetch", "begin", ("read_layout", 1.5)]
    worker.did.clear()
    worker.come = False
    order = ordered("Fetch")
    assert said(orders, order) == UNDER_WAY
    assert worker.did == [("fetch", 2, {"wait": False, "deadline": 1.5, "allow_rollback": True, "run": 5})]
    assert said(orders, order) == UNDER_WAY and worker.did[1:] == ["arrived"]
    worker.come = True
    assert said(orders, order) == DONE and worker.did[1:] == ["arrived", "arrived"]
    assert said(orders, order) == DONE and len(worker.did) == 3, "it comes again: nothing is done anew"
    worker.did.clear()
    order = ordered("Pause")
    assert said(orders, order) == ASKED and orders.may_serve()
    assert said(orders, order) == ASKED, "asked again"
    assert orders.performed(order["attempt"], None) == {
        "answers": [{"attempt": order["attempt"], "answer": "Done"}], "perform": None, "error": None,
    }
    assert not orders.may_serve() and worker.did == []
    assert said(orders, ordered("Begin")) == DONE and worker.did == ["before_install"]
    assert said(orders, ordered("Install")) == DONE and worker.did[1:] == ["install", "after_install"]
    assert said(orders, ordered("PostProcess")) == DONE and len(worker.did) == 3, "the loader has done so"
    worker.version = TWO
    assert said(orders, ordered("Verify")) == DONE and worker.did[3:] == ["check_serving"]
    for step in ("Invalidate", "Stamp", "Resume"):
        order = ordered(step)
        assert said(orders, order) == ASKED and not orders.may_serve()
        assert orders.performed(order["attempt"], None)["answers"] == [{"attempt": order["attempt"], "answer": "Done"}]
    assert orders.may_serve() and worker.did[4:] == []
    report = orders.report()
    assert (report["life"], report["ready"], report["serving"], report["paused"]) == (LIFE, TWO, True, False)


def test_bytes_that_land_in_place_are_waited_for_and_installed_by_their_last_step() -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    staged(worker, orders)
    order = ordered("Fetch", "InPlace")
    assert said(orders, order) == UNDER_WAY
    assert worker.did == [("fetch", 2, {"wait": True, "deadline": 1.5, "allow_rollback": True, "run": 5})]
    assert said(orders, order) == DONE
    worker.did.clear()
    assert said(orders, ordered("PostProcess", "InPlace")) == DONE
    assert worker.did == ["install", "after_install"]


def test_a_version_that_is_given_up() -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    staged(worker, orders)
    assert said(orders, ordered("Discard")) == DONE and worker.did == ["give_up"]


@pytest.mark.parametrize(("step", "call"), [
    ("Negotiate", "before_fetch"), ("Negotiate", "begin"), ("Negotiate", "read_layout"), ("Fetch", "fetch"), ("Begin", "before_install"),
    ("Install", "install"), ("Install", "after_install"), ("Discard", "give_up"),
])
def test_a_step_that_fails_is_quoted_until_the_next_one(step: str, call: str) -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    if step in ("Begin", "Install"):
        staged(worker, orders)
    worker.fails = {call: wc.LayoutMismatch("no room")}
    order = ordered(step)
    assert said(orders, order) == failed(f"{step}: no room", "Layouts")
    assert worker.did[-1] == call or worker.did[-1][0] == call, "and nothing follows"
    assert said(orders, order) == failed(f"{step}: no room", "Layouts")
    worker.fails = {}
    assert said(orders, ordered("Discard")) == DONE


def test_a_fetch_that_fails_on_its_way_has_failed_once() -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    worker.come = False
    order = ordered("Fetch")
    assert said(orders, order) == UNDER_WAY
    worker.fails = {"arrived": wc.DigestMismatch()}
    assert said(orders, order) == failed("Fetch: DigestMismatch", "Digest")
    worker.did.clear()
    assert said(orders, order) == failed("Fetch: DigestMismatch", "Digest")
    assert worker.did == [], "nobody looks again"


LOADED = {"epoch": 0, "number": 0}


@pytest.mark.parametrize(("held", "wanted", "error"), [
    (TWO, TWO, None),
    (TWO, TWO, "Verify: half"),
    (ONE, TWO, "Verify: the parameters hold {'epoch': 5, 'number': 1}, not {'epoch': 5, 'number': 2}"),
    (None, LOADED, None),
    (None, ONE, "Verify: the parameters hold {'epoch': 0, 'number': 0}, not {'epoch': 5, 'number': 1}"),
])
def test_what_is_in_place_is_compared_with_what_was_ordered(held: Any, wanted: Any, error: str | None) -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    staged(worker, orders)
    worker.handle.epoch = wanted["epoch"]
    for step in ("Fetch", "Fetch", "Install", "PostProcess"):
        if len(worker.did) != 1:  # asked again, a fetch has ended
            order = ordered(step, version=wanted)
        said(orders, order)
    worker.version = held
    if error == "Verify: half":
        worker.fails = {"check_serving": wc.ContentMismatch("half")}
    assert said(orders, ordered("Verify", version=wanted)) == (DONE if error is None else failed(error, "Digest"))


def test_an_engine_that_could_not_take_a_step_says_why() -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    order = ordered("Pause")
    orders.order(order)
    other = order["attempt"] | {"number": 0}
    assert orders.performed(other, None) == {"answers": [], "perform": None, "error": None}, "of another step"
    order = ordered("Pause")
    orders.order(order)
    assert orders.performed(order["attempt"], "it is busy" * 300) == {
        "answers": [{"attempt": order["attempt"], "answer": {"Failed": "Engine"}}], "perform": None,
        "error": ("Pause: " + "it is busy" * 300)[:2000],
    }
    assert orders.performed(order["attempt"], None)["answers"] == [], "asked once"


ERRORS = [
    (wc.LayoutMismatch("a"), "layouts"), (wc.DigestMismatch("a"), "digest"), (wc.ContentMismatch("a"), "digest"),
    (wc.SourceLost("a"), "source"), (wc.VersionUnavailable("a"), "source"), (wc.Timeout("a"), "source"),
    (wc.ServerUnreachable("a"), "source"), (wc.Misuse("a"), "engine"), (RuntimeError("a"), "engine"),
]


@pytest.mark.parametrize(("error", "name"), ERRORS)
def test_errors_have_the_names_of_the_machines(error: Exception, name: str) -> None:
    assert failure_of(error) == name


def test_an_engine_that_sleeps_or_changes_by_itself_obeys_no_former_order() -> None:
    worker = Worker()
    orders = Orders(worker, LIFE)
    worker.come = False
    order = ordered("Fetch")
    orders.order(order)
    orders.renew()
    assert orders.life == LIFE + 1 and orders.may_serve()
    worker.did.clear()
    assert said(orders, order)[0] == [(True, {"Failed": "OtherLife"})]
    assert worker.did == [], "nobody waits for its fetch any more"
    pause = ordered("Pause", life=LIFE + 1)
    orders.order(pause)
    orders.renew(30)
    assert orders.life == 30
    assert orders.performed(pause["attempt"], None)["answers"] == [], "nobody was asked"
    orders.slept()
    assert not orders.may_serve() and orders.report()["asleep"]
    assert said(orders, ordered("Negotiate", life=30))[0] == [(True, {"Failed": "Asleep"})]
    orders.renew()
    worker.state = EngineState(1, None, "half")
    orders.renew()
    assert not orders.may_serve() and orders.report()["held"] is None


def test_routers_are_told_what_a_worker_serves() -> None:
    worker = Worker()
    worker.handle._core.ask_routing = lambda question, deadline: (question, deadline)
    orders = Orders(worker, LIFE)
    told = orders._notices
    assert told.who == ("e", 1, 3) and told.said == [(LIFE, ONE)]
    assert told.ask("q", 2.0) == str(("q", 2.0))
    order = ordered("Pause")
    orders.order(order)
    orders.performed(order["attempt"], None)
    assert told.said[-1] == (LIFE, None)
    orders.renew()
    assert told.said[-1] == (LIFE + 1, ONE)
    orders.slept()
    assert told.said[-1] == (LIFE + 1, None)
    orders.close()
    assert told.said[-2:] == [(LIFE + 1, None), "closed"]
    worker.settings.address, worker.version = "http://e", None
    other = Orders(worker, LIFE)
    assert other._notices.who == ("http://e", 1, 3)
    assert other._notices.said == [(LIFE, {"epoch": 0, "number": 0})], "what it has loaded"


def test_drivers_before_the_newest_have_no_say() -> None:
    worker = Worker()
    worker.handle._core.driver = 10
    orders = Orders(worker, LIFE)
    assert worker.handle._core.asked == [("State", 5.0)]
    assert said(orders, ordered("Pause"))[0] == [(True, {"Failed": "Fenced"})]
    worker.handle._core.driver = wc.ServerUnreachable("away")
    assert said(Orders(worker, LIFE), ordered("Pause")) == ASKED, "the next driver's question orders them"


# The line.

ATTEMPT = {"driver": 1, "number": 1}
OTHER = {"driver": 1, "number": 0}


def reply(answer: Any = "Done", attempt: Any = ATTEMPT, **more: Any) -> dict[str, Any]:
    answers = [] if answer is None else [{"attempt": attempt, "answer": answer}]
    return {"answers": answers, "perform": None, "error": None} | more


def asking() -> dict[str, Any]:
    return reply(None, perform=ATTEMPT)


class Client:
    """Notes what it is asked, and answers as a test says: call by call, and the last one again."""

    base_url = "http://e"
    looks = (0.0, 0.0)

    def __init__(self, order: Any = (), performed: Any = (), workers: Any = 2, paused: bool = False, **fails: Any) -> None:
        self.log: list[Any] = []
        self.answers = {"order": list(order), "performed": list(performed), "workers": [workers], "paused": [paused]}
        self.fails = fails

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def called(*arguments: Any) -> Any:
            self.log.append((name, *arguments) if arguments else name)
            said = self.fails.get(name)
            if said is None and name in self.answers:
                answers = self.answers[name]
                said = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(said, Exception):
                raise said
            return said

        return called


def to_engine(step: str, **more: Any) -> dict[str, Any]:
    return {"attempt": ATTEMPT, "step": step, "version": TWO, "keep_caches": False} | more


class Line:
    """A line without its thread, what it has told, and its engine."""

    def __init__(self, client: Client) -> None:
        self.client, self.told = client, []
        self.line = EngineLine(4, client, self.told.append, {"model": "m"}, "me", "keep", 24.0)
        self.line.close()
        self.line._thread.join(SOON)
        self.line.count()
        self.line.known()
        client.log.clear()

    def bring(self, step: str, **more: Any) -> list[Any]:
        """What is told of an order, until it is brought no more."""
        order = self.line._order = to_engine(step, **more)
        self.line._bring(order)
        assert self.line._order is None
        return self.told


def answered(worker: int, answer: Any = "Done") -> dict[str, Any]:
    return {"Engine": {"engine": 4, "input": {"Answered": {"worker": worker, "attempt": ATTEMPT, "answer": answer}}}}


BOTH = [answered(0), answered(1)]
FAILED = {"Failed": "Engine"}
DONE_BOTH = [reply(), reply()]
ASK_BOTH = [asking(), asking()]
PERFORMED = ("performed", ATTEMPT, None)
NO = RuntimeError("no")


def could_not(why: str) -> Any:
    return "performed", ATTEMPT, why


#: The engine, the step; what the engine is asked, what the driver hears, and what the line keeps as the error.
LINES: dict[str, tuple[Client, Any, list[Any], list[Any], str | None]] = {
    "all answer": (Client([DONE_BOTH]), to_engine("Fetch"), ["order"], BOTH, None),
    "one answers later": (Client([[reply(), reply(None)], DONE_BOTH]), to_engine("Fetch"), ["order"] * 2, [answered(0), *BOTH], None),
    "of an earlier order": (Client([[reply(), reply("Done", OTHER)], DONE_BOTH]), to_engine("Fetch"), ["order"] * 2, [answered(0), *BOTH], None),
    "one fails": (Client([[reply(), reply(FAILED, error="why")]]), to_engine("Fetch"), ["order"], [answered(0), answered(1, FAILED)], "why"),
    "a request is lost": (Client([NO, DONE_BOTH]), to_engine("Fetch"), ["order"] * 2, BOTH, "no"),
    "it has gone": (Client([Gone("gone")]), to_engine("Fetch"), ["order"], [{"Engine": {"engine": 4, "input": "Lost"}}], "gone"),
    "it was started again": (Client([[None, None], DONE_BOTH]), to_engine("Fetch"),
                             ["order", ("init_weight_transfer_engine", {"model": "m"}), "order"], BOTH, None),
    "one worker was": (Client([[reply(), None], DONE_BOTH]), to_engine("Fetch"),
                       ["order", ("init_weight_transfer_engine", {"model": "m"}), "order"], BOTH, None),
    "it stops": (Client([ASK_BOTH], [DONE_BOTH]), to_engine("Pause"),
                 ["order", ("take", "me", 24.0), ("pause", "keep"), PERFORMED], BOTH, None),
    "not all ask yet": (Client([[asking(), reply(None)], ASK_BOTH], [DONE_BOTH]), to_engine("Pause"),
                        ["order", "order", ("take", "me", 24.0), ("pause", "keep"), PERFORMED], BOTH, None),
    "they ask for another": (Client([[reply(None, perform=OTHER)] * 2, ASK_BOTH], [DONE_BOTH]), to_engine("Pause"),
                             ["order", "order", ("take", "me", 24.0), ("pause", "keep"), PERFORMED], BOTH, None),
    "it is another's turn": (Client([ASK_BOTH], [DONE_BOTH], take=NO), to_engine("Pause"),
                             ["order", ("take", "me", 24.0), could_not("Pause: no")], BOTH, "Pause: no"),
    "it does not stop": (Client([ASK_BOTH], [DONE_BOTH], pause=ValueError()), to_engine("Pause"),
                         ["order", ("take", "me", 24.0), ("pause", "keep"), could_not("Pause: ValueError")], BOTH, "Pause: ValueError"),
    "it goes as it stops": (Client([ASK_BOTH], take=Gone("gone")), to_engine("Pause"), ["order", ("take", "me", 24.0)],
                            [{"Engine": {"engine": 4, "input": "Lost"}}], "gone"),
    "caches go": (Client([ASK_BOTH], [DONE_BOTH]), to_engine("Invalidate"), ["order", "invalidate", PERFORMED], BOTH, None),
    "caches stay": (Client([ASK_BOTH], [DONE_BOTH]), to_engine("Invalidate", keep_caches=True), ["order", PERFORMED], BOTH, None),
    "it is stamped": (Client([ASK_BOTH], [DONE_BOTH]), to_engine("Stamp"), ["order", ("stamp", "2"), PERFORMED], BOTH, None),
    "it goes on": (Client([ASK_BOTH], [DONE_BOTH]), to_engine("Resume"), ["order", PERFORMED, "resume", ("give_back", "me")], BOTH, None),
    "a worker does not": (Client([ASK_BOTH], [[reply(), reply(FAILED)]]), to_engine("Resume"), ["order", PERFORMED],
                          [answered(0), answered(1, FAILED)], None),
    "a worker says nothing": (Client([ASK_BOTH, DONE_BOTH], [[reply(), reply(None)]]), to_engine("Resume"), ["order", PERFORMED, "order"],
                              [answered(0), *BOTH], None),
    "of another step": (Client([ASK_BOTH, DONE_BOTH], [[reply(), reply("Done", OTHER)]]), to_engine("Resume"), ["order", PERFORMED, "order"],
                        [answered(0), *BOTH], None),
    "the engine does not": (Client([ASK_BOTH, DONE_BOTH], [DONE_BOTH], resume=NO), to_engine("Resume"), ["order", PERFORMED, "resume"],
                            [answered(0, FAILED)], "Resume: no"),
    "its turn stays": (Client([ASK_BOTH], [DONE_BOTH], give_back=NO), to_engine("Resume"),
                       ["order", PERFORMED, "resume", ("give_back", "me")], [answered(0, FAILED)], "Resume: no"),
    "others take a step by themselves": (Client([[asking(), asking()], DONE_BOTH]), to_engine("Fetch"), ["order"] * 2, BOTH, None),
    "workers have gone": (Client([[reply()], DONE_BOTH]), to_engine("Fetch"), ["order"] * 2, BOTH,
                          "it has 1 workers, and had 2 when the update began: send the version again"),
}


@pytest.mark.parametrize(("client", "order", "asks", "told", "error"), LINES.values(), ids=[*LINES])
def test_the_course_of_an_order(client: Client, order: Any, asks: list[Any], told: list[Any], error: str | None) -> None:
    made = Line(client)
    assert made.bring(**{name: what for name, what in order.items() if name != "attempt"}) == told
    assert client.log == [("order", order) if one == "order" else one for one in asks]
    assert made.line.error == error
    made.line.begin()
    assert made.line.error is None


@pytest.mark.parametrize(("paused", "shown"), [(True, {"paused": True, "serving": False, "life": 1}),
                                               (False, {"paused": False, "serving": True, "life": 1})])
def test_workers_do_not_know_whether_their_engine_stands_still(paused: bool, shown: Any) -> None:
    seen = {"Inspected": {"paused": False, "serving": True, "life": 1}}
    made = Line(Client([[reply(seen)]], workers=1, paused=paused))
    assert made.bring("Inspect") == [answered(0, {"Inspected": shown})]
    assert made.client.log == [("order", to_engine("Inspect")), "paused"]


def test_how_many_workers_an_engine_has_is_what_it_said_last() -> None:
    client = Client(workers=3)
    made = EngineLine(0, client, print, {}, "me", "keep", 1.0)
    assert made.name == "http://e" and made.error is None and made.known() == 1
    made.count()
    assert made.known() == 3
    client.answers["workers"] = [RuntimeError("away")]
    made.count()
    assert made.known() == 3 and made.error == "away"
    client.base_url = None
    del Client.base_url
    try:
        assert EngineLine(0, SimpleNamespace(), print, {}, "me", "keep", 1.0).name == "SimpleNamespace"
    finally:
        Client.base_url = "http://e"
    made.close()


def test_an_order_is_brought_until_it_is_abandoned_or_followed() -> None:
    heard = queue.SimpleQueue()
    client = Client(workers=1)
    client.order = lambda order: heard.put(order["step"]) or [reply(None)]
    made = EngineLine(0, client, print, {}, "me", "keep", 1.0)
    first, other = to_engine("Fetch"), to_engine("Begin", attempt=OTHER)
    made.bring(first)
    assert [heard.get(timeout=SOON) for _ in range(3)] == ["Fetch"] * 3
    made.abandon(other)
    assert made._order is first
    made.bring(other)
    assert "Begin" in iter(lambda: heard.get(timeout=SOON), None)
    for end in (lambda: made.abandon(other), made.rest):
        end()
        assert made._order is None
        made.abandon(other)
        made.bring(other)
    made.close()
    made._thread.join(SOON)
    assert not made._thread.is_alive() and made._order is None


def test_an_engine_that_does_not_answer_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []

    class Changed:
        """In the place of a condition: notes for how long one waits."""

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def notify_all(self) -> None: ...

        def wait_for(self, ready: Any, timeout: float | None = None) -> None:
            waits.append(timeout)

    for client, expected in (
        (Client([[reply(None)]] * 9 + [[reply()]], workers=1), [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1, 0.1]),
        (Client([NO] * 12 + [[reply()]], workers=1), [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 1.0, 1.0]),
        (Client([[reply(None)]] * 3 + [[reply()]], workers=1), [0.05, 0.1, 0.1]),
    ):
        made = EngineLine(0, client, lambda event: None, {}, "me", "keep", 1.0)
        made.close()
        made._thread.join(SOON)
        made._changed, made._order = Changed(), to_engine("Fetch")
        monkeypatch.setattr(Client, "looks", (0.05, 0.1) if len(expected) == 3 else line.LOOKS)
        waits.clear()
        made._bring(made._order)
        assert waits == pytest.approx(expected)
