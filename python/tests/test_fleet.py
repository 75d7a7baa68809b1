"""A fleet of engines that take orders, without vLLM: the real driver, gates and register, and engines that fail, die
and lose answers where a test says."""

import itertools
import json
import random
import threading
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from weightcast.adapters.engine import EngineState  # noqa: E402
from weightcast.adapters.engine.fleet import Fleet  # noqa: E402
from weightcast.adapters.engine.http import Gone  # noqa: E402
from weightcast.adapters.engine.orders import Orders  # noqa: E402

from .notices import Straight  # noqa: E402

#: Seconds of a step's deadline.
SOON = 20.0
RUN = 1


class Shard:
    """What `EngineShard` says and does, with numbers for weights."""

    def __init__(self, core, come, engine: str, worker: int, workers: int) -> None:
        self.handle = SimpleNamespace(_core=core, epoch=RUN)
        self.settings = SimpleNamespace(address=None)
        self.replica = wc.Replica(engine, worker, workers)
        self.come = come
        self.installed, self.fetched, self.incomplete, self.run = None, None, None, None
        #: How often it is looked at before its bytes have come.
        self.late = 0
        #: What it puts in place is so much off.
        self.wrong = 0

    @property
    def state(self) -> EngineState:
        return EngineState(self.installed, self.fetched, self.incomplete)

    @property
    def version(self):
        return None if self.installed is None else {"epoch": self.run, "number": self.installed}

    def begin(self) -> None:
        self.come("begin")

    def read_layout(self, deadline: float) -> None:
        self.come("read_layout")

    def fetch(self, version: int, run: int, **_) -> None:
        self.come("fetch")
        if run != self.handle.epoch:
            raise wc.VersionUnavailable(f"run {run} is over")
        self.fetched = version

    def arrived(self) -> bool:
        self.come("arrived")
        self.late -= 1
        return self.late < 0 and self.fetched is not None

    def give_up(self) -> None:
        self.fetched = None

    def install(self) -> None:
        self.incomplete = "half"
        self.come("install")
        if self.fetched is not None:
            self.installed, self.fetched, self.run = self.fetched + self.wrong, None, RUN
        self.incomplete = None

    def check_serving(self) -> None:
        if self.incomplete is not None:
            raise wc.WeightcastError(self.incomplete)


class Engine:
    """A client and its engine of two workers. `failures` says how often a step fails; `strikes` is called with each
    step, and may raise."""

    def __init__(self, core, strikes=lambda step: None, name: str = "e") -> None:
        self.base_url, self.failures, self.strikes = name, {}, strikes
        self.stamped, self.joined = None, 0
        self._core, self._lives = core, itertools.count()
        self.start()

    def start(self, workers: int = 2) -> None:
        """With what it loads by itself."""
        self.stopped, self.dead = False, False
        #: The version of which its caches are.
        self.cached = 0
        self.ranks, life = [], next(self._lives)
        for worker in range(workers):
            shard = Shard(self._core, self.come, self.base_url, worker, workers)
            host = SimpleNamespace(
                shard=lambda shard=shard: shard,
                before_fetch=lambda: self.come("before_fetch"),
                before_install=lambda: self.come("before_install"),
                after_install=lambda: None,
            )
            self.ranks.append((shard, Orders(host, life)))

    def come(self, step: str) -> None:
        self.strikes(step)
        if self.failures.get(step, 0) > 0:
            self.failures[step] -= 1
            raise RuntimeError(f"{step} fails")

    def reach(self, step: str) -> None:
        if self.dead:
            raise Gone(f"{self.base_url} has gone")
        self.come(step)

    def serves(self):
        """The version that it serves, None where it serves nothing; 0 is what it has loaded."""
        if self.dead or self.stopped or not all(orders.may_serve() for _, orders in self.ranks):
            return None
        (held,) = {shard.installed or 0 for shard, _ in self.ranks}
        assert self.cached == held, "it generates with caches of another version"
        return held

    def init_weight_transfer_engine(self, settings) -> None:
        self.joined += 1

    def workers(self) -> int:
        self.reach("ask")
        return len(self.ranks)

    def order(self, order):
        self.reach("order")
        said = [orders.order(json.loads(json.dumps(order))) for _, orders in self.ranks]
        self.reach("answer")
        return said

    def performed(self, attempt, failure):
        self.reach("order")
        said = [orders.performed(attempt, failure) for _, orders in self.ranks]
        self.reach("answer")
        return said

    def pause(self, mode: str) -> None:
        self.reach("pause")
        self.stopped = True

    def paused(self) -> bool:
        self.reach("ask")
        return self.stopped

    def resume(self) -> None:
        self.reach("resume")
        self.stopped = False
        # It runs at once, and ends if a worker refuses.
        self.dead = not all(orders.may_serve() for _, orders in self.ranks)

    def invalidate(self) -> None:
        self.reach("invalidate")
        assert self.stopped
        (self.cached,) = {shard.installed for shard, _ in self.ranks}

    def stamp(self, version: str) -> None:
        self.reach("stamp")
        self.stamped = version

    def take(self, holder: str, seconds: float) -> None:
        self.reach("take")

    def give_back(self, holder: str) -> None:
        self.reach("give_back")


@pytest.fixture(autouse=True)
def straight(monkeypatch):
    monkeypatch.setattr("weightcast.adapters.engine.orders.Notices", Straight)


@pytest.fixture
def job():
    with wc.serve() as server, wc.open("m", wc.Replica("t"), role="trainer", server=server.address) as handle:
        yield handle._core


@pytest.fixture
def fleet_of(job):
    """Makes fleets, whose threads end with the test."""
    made = []

    def fleet_of(engines) -> Fleet:
        made.append(Fleet(engines, job.ask_fleet, {}, holder="t", pause="abort", deadline=SOON))
        return made[-1]

    yield fleet_of
    for fleet in made:
        fleet.close()


def version(number: int) -> dict:
    return {"epoch": RUN, "number": number}


def test_all_come_to_a_version(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(3)]
    assert [engine.serves() for engine in engines] == [0, 0, 0]
    fleet = fleet_of(engines)
    for number in (1, 2):
        fleet.update(version(number))
        assert [engine.serves() for engine in engines] == [number] * 3
        assert {engine.stamped for engine in engines} == {str(number)}


def test_workers_whose_bytes_come_later_are_waited_for(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(3)]
    engines[0].ranks[1][0].late = 3
    engines[2].ranks[0][0].late = 5
    fleet_of(engines).update(version(1))
    assert [engine.serves() for engine in engines] == [1] * 3


@pytest.mark.parametrize("step", ["begin", "read_layout", "fetch", "arrived", "take", "pause"])
def test_a_step_that_fails_before_the_verdict_leaves_all_as_they_were(job, fleet_of, step) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(3)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    engines[1].failures = {step: 1}
    with pytest.raises(wc.WeightcastError, match=rf"version 2 was given up.*: e1: .*{step} fails$"):
        fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [1] * 3
    assert {shard.fetched for engine in engines for shard, _ in engine.ranks} == {None}
    fleet.update(version(3))
    assert [engine.serves() for engine in engines] == [3] * 3


@pytest.mark.parametrize("step", ["install", "invalidate", "stamp", "resume", "give_back"])
def test_a_step_that_fails_once_after_the_verdict_is_repeated(job, fleet_of, step) -> None:
    engines = [Engine(job) for _ in range(3)]
    fleet = fleet_of(engines)
    engines[1].failures = {step: 1}
    fleet.update(version(1))
    assert [engine.serves() for engine in engines] == [1] * 3


def test_an_engine_that_cannot_install_serves_nothing_and_comes_along_later(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(3)]
    fleet = fleet_of(engines)
    engines[1].failures = {"install": 99}
    with pytest.raises(wc.WeightcastError, match="1 of 3 engines.*stay paused.*e1: .*install fails"):
        fleet.update(version(1))
    assert [engine.serves() for engine in engines] == [1, None, 1]
    engines[1].failures = {}
    fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [2] * 3


@pytest.mark.parametrize("sleepers", [[1], [0, 1, 2]])
def test_engines_that_sleep_are_named(job, fleet_of, sleepers) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(3)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    for n in sleepers:
        for _, orders in engines[n].ranks:
            orders.slept()
    told = "; ".join(f"e{n}: it sleeps; wake it up, and send the version again" for n in sleepers)
    with pytest.raises(wc.WeightcastError, match=f"{len(sleepers)} of 3 engines.*{told}$"):
        fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [None if n in sleepers else 2 for n in range(3)]
    for n in sleepers:
        for _, orders in engines[n].ranks:
            orders.renew()
    fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [2, 2, 2]


def test_what_has_come_since_the_fetch_keeps_the_version_out(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(3)]

    def loaded(step: str) -> None:
        if step == "before_install":
            raise wc.Misuse("an adapter was loaded")

    engines[1].strikes = loaded
    with pytest.raises(wc.WeightcastError, match="1 of 3 engines.*e1: Begin: an adapter was loaded"):
        fleet_of(engines).update(version(1))
    assert [engine.serves() for engine in engines] == [1, None, 1]
    assert {shard.installed for shard, _ in engines[1].ranks} == {None}


def test_a_version_of_another_run_is_not_installed(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(2)]
    engines[1].ranks[1][0].handle.epoch = 9
    with pytest.raises(wc.WeightcastError, match="given up.*e1: Fetch: run 1 is over"):
        fleet_of(engines).update(version(1))
    assert [engine.serves() for engine in engines] == [0, 0]


def test_an_engine_that_has_put_something_else_in_place_does_not_serve(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(2)]
    for shard, _ in engines[0].ranks:
        shard.wrong = 5
    with pytest.raises(wc.WeightcastError, match="1 of 2 engines.*e0: Verify: the parameters hold .*6"):
        fleet_of(engines).update(version(1))
    assert [engine.serves() for engine in engines] == [None, 1]


def test_answers_that_are_lost_are_asked_for_again(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(3)]
    for engine in engines:
        engine.failures = {"answer": 5, "order": 3}
    fleet = fleet_of(engines)
    fleet.update(version(1))
    assert [engine.serves() for engine in engines] == [1] * 3


def test_a_dead_engine_is_named_once_and_left_out(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(3)]
    fleet = fleet_of(engines)

    def die(step: str) -> None:
        if step == "install":
            engines[0].dead = True
            raise Gone("e0 has gone")

    engines[0].strikes = die
    with pytest.raises(wc.WeightcastError, match="1 of 3 engines.*e0 has gone"):
        fleet.update(version(1))
    assert [engine.serves() for engine in engines] == [None, 1, 1]
    fleet.update(version(2))
    assert fleet.dead == {0}
    assert [engine.serves() for engine in engines] == [None, 2, 2]
    engines[1].dead = True  # between two updates
    with pytest.raises(wc.WeightcastError, match="1 of 3 engines.*e1 has gone"):
        fleet.update(version(3))
    engines[0].strikes = lambda step: None
    engines[0].start()
    fleet.update(version(4))
    assert fleet.dead == {1}
    assert [engine.serves() for engine in engines] == [4, None, 4]
    for engine in engines:
        engine.dead = True
    with pytest.raises(wc.WeightcastError, match="all engines are dead"):
        fleet.update(version(5))


def test_an_engine_that_is_out_of_reach_holds_up_its_fleet(job) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(2)]
    fleet = Fleet(engines, job.ask_fleet, {}, holder="t", pause="abort", deadline=0.5)
    engines[1].failures = {"order": 10**6}
    with pytest.raises(wc.WeightcastError, match="nothing was begun, since e1 may serve"):
        fleet.update(version(1))
    assert [engine.serves() for engine in engines] == [0, 0]
    assert all(line._order is None for line in fleet._lines.values()), "nobody is asked any more"
    fleet.close()


class Killed(BaseException):
    """The trainer's process is no more."""


STEPS = ["order", "answer", "begin", "fetch", "arrived", "pause", "install", "invalidate", "stamp", "resume"]


def lose_trainer(fleet: Fleet, engines: list[Engine], struck: str, left: int) -> None:
    """While it updates engines to version 2: at this step, after so many of them."""
    lost, counts = threading.Event(), itertools.count()

    def strike(step: str) -> None:
        if lost.is_set() or step == struck and next(counts) == left:
            lost.set()
            raise Killed

    for engine in engines:
        engine.strikes = strike

    def update() -> None:
        with suppress(wc.WeightcastError, Killed):
            fleet.update(version(2))
        lost.set()

    # Threads of the lost process end with it.
    threading.excepthook, former = lambda _: None, threading.excepthook
    try:
        threading.Thread(target=update, daemon=True).start()
        assert lost.wait(SOON)
        for line in fleet._lines.values():
            line.close()
            line._thread.join(SOON)
        said = {engine.serves() for engine in engines} - {None}
        assert len(said) <= 1, f"engines serve {said}"
    finally:
        threading.excepthook = former
    for engine in engines:
        engine.strikes = lambda step: None


@pytest.mark.parametrize("seed", range(40))
def test_a_trainer_that_is_lost_anywhere_leaves_no_two_versions(job, fleet_of, seed) -> None:
    draw = random.Random(seed)
    engines = [Engine(job, name=f"e{n}") for n in range(3)]
    first = fleet_of(engines)
    first.update(version(1))
    lose_trainer(first, engines, draw.choice(STEPS), draw.randrange(12))
    second = fleet_of(engines)
    second.bring(None)
    said = [engine.serves() for engine in engines]
    assert said in ([1, 1, 1], [2, 2, 2]), "what was lost is ended, without a new version"
    second.update(version(3))
    assert [engine.serves() for engine in engines] == [3] * 3


def test_the_end_of_a_lost_trainers_update_is_none_of_the_next_one(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(3)]
    first = fleet_of(engines)
    first.update(version(1))
    lose_trainer(first, engines, "fetch", 0)
    # Its version is given up, and this one is there.
    fleet_of(engines).update(version(1))
    assert [engine.serves() for engine in engines] == [1] * 3
    assert fleet_of(engines).bring(None).end is None


def test_an_update_that_is_interrupted_is_not_taken_for_the_next_one(job, fleet_of, monkeypatch) -> None:
    def interrupted(report) -> None:
        raise KeyboardInterrupt

    engines = [Engine(job) for _ in range(2)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fleet, "_wait", interrupted)
        fleet.update(version(2))
    fleet.update(version(3))
    assert [engine.serves() for engine in engines] == [3, 3]


def test_an_engine_that_stands_still_already_goes_on_if_the_update_comes_to_nothing(job, fleet_of) -> None:
    """Its workers know nothing of that."""
    engines = [Engine(job) for _ in range(2)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    engines[0].stopped = True
    engines[0].failures = {"read_layout": 1}
    with pytest.raises(wc.WeightcastError, match="version 2 was given up"):
        fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [1, 1]


@pytest.mark.parametrize("question", range(1, 6))
def test_a_register_that_is_lost_with_its_server_loses_no_fleet(job, question) -> None:
    engines = [Engine(job) for _ in range(3)]
    with wc.serve() as other, wc.open("m", wc.Replica("t"), role="trainer", server=other.address) as handle:
        asked = itertools.count()

        def ask(said: str, deadline: float) -> str:
            at = next(asked)
            if at == question:
                raise wc.ServerUnreachable("the server is lost")
            return (job if at < question else handle._core).ask_fleet(said, deadline)

        for deadline, number in ((1.0, 1), (1.0, 2), (5.0, 3)):
            fleet = Fleet(engines, ask, {}, holder="t", pause="abort", deadline=deadline)
            # The verdict may be lost with the register: then there was none.
            with suppress(wc.WeightcastError) if number < 3 else nullcontext():
                fleet.update(version(number))
            fleet.close()
            assert len({engine.serves() for engine in engines}) == 1
        assert next(asked) > question
        assert [engine.serves() for engine in engines] == [3] * 3


def test_a_successor_keeps_the_former_driver_out(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(2)]
    first, second = fleet_of(engines), fleet_of(engines)
    first.update(version(1))
    second.update(version(2))
    with pytest.raises(wc.WeightcastError, match="another trainer drives these engines"):
        first.update(version(3))
    assert [engine.serves() for engine in engines] == [2, 2]


def test_a_push_of_the_same_model_takes_over_no_fleet(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(2)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    for key in range(3):
        job.ask_fleet(json.dumps({"PushNumber": {"key": key, "heard": None}}), SOON)
    fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [2, 2]


def test_what_calls_have_changed_is_told_to_the_driver(job, fleet_of) -> None:
    engines = [Engine(job) for _ in range(2)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    for shard, orders in engines[0].ranks:
        shard.incomplete = "an update by calls failed"
        orders.renew()
    assert engines[0].serves() is None
    fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [2, 2]


def pause(life: int) -> dict:
    """An order to an engine of this life, to stand still."""
    return {
        "attempt": {"driver": 2**40, "round": 1, "by_itself": False, "number": 1},
        "life": life,
        "step": "Pause",
        "version": version(1),
        "old": None,
        "means": "Staged",
        "keep_caches": False,
        "deadline": 10**9,
        "transaction": None,
    }


def test_an_order_for_what_an_engine_was_has_no_effect(job) -> None:
    orders = Engine(job).ranks[0][1]
    late = pause(orders.report()["life"])
    orders.renew()
    (answer,) = orders.order(late)["answers"]
    assert answer["answer"] == {"Failed": "OtherLife"}
    assert orders.order(pause(orders.report()["life"]))["perform"] == late["attempt"]


def test_a_step_of_the_engine_is_not_taken_once_a_newer_driver_was_heard(job) -> None:
    orders = Engine(job).ranks[0][1]
    former = pause(orders.report()["life"])
    assert orders.order(former)["perform"] == former["attempt"]
    newer = former | {"step": "Inspect", "attempt": former["attempt"] | {"driver": 2**41}}
    assert orders.order(newer)["perform"] is None
    again = orders.order(former)
    assert again["perform"] is None, "the client would pause an engine that another driver drives"
    assert [answer["answer"] for answer in again["answers"]] == [{"Failed": "Fenced"}]


def routed(job) -> dict:
    """By engine, what a router is told: the state, and the version's number."""
    answer = json.loads(job.ask_routing(json.dumps("Engines")))
    number = {e["engine"]: (e["version"] or {"number": None})["number"] for e in answer["engines"]}
    return {e["engine"]: (e["state"], number[e["engine"]]) for e in answer["engines"]}


def test_a_router_is_sent_to_engines_that_serve_the_fleets_version(job, fleet_of) -> None:
    engines = [Engine(job, name=name) for name in "abc"]
    assert routed(job) == dict.fromkeys("abc", ("Admitted", 0)), "with what they have loaded"
    fleet = fleet_of(engines)
    fleet.update(version(1))
    assert routed(job) == dict.fromkeys("abc", ("Admitted", 1))
    engines[1].failures["install"] = 9
    with pytest.raises(wc.WeightcastError, match="not installed by 1 of 3"):
        fleet.update(version(2))
    assert routed(job) == {"a": ("Admitted", 2), "b": ("Standing", None), "c": ("Admitted", 2)}
    engines[1].failures.clear()
    fleet.update(version(3))
    assert routed(job) == dict.fromkeys("abc", ("Admitted", 3))


def test_a_router_is_sent_nowhere_while_engines_stand_still(job, fleet_of) -> None:
    seen = []
    engines = [Engine(job, lambda step: step == "install" and seen.append(routed(job)), "a")]
    fleet_of(engines).update(version(1))
    assert seen == [{"a": ("Standing", None)}] * 2, "one for each worker"
    assert routed(job) == {"a": ("Admitted", 1)}


def test_an_engine_that_starts_again_is_admitted_once_it_serves_the_fleets_version(job, fleet_of) -> None:
    engines = [Engine(job, name=name) for name in "ab"]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    engines[1].start()
    assert routed(job) == {"a": ("Admitted", 1), "b": ("Behind", 0)}
    fleet.bring(None)
    assert routed(job) == dict.fromkeys("ab", ("Admitted", 1))


def test_an_engine_that_sleeps_or_leaves_is_not_routed_to(job) -> None:
    engine = Engine(job, name="a")
    (shard, first), (_, second) = engine.ranks
    first.slept()
    assert routed(job) == {"a": ("Standing", None)}
    first.renew()
    assert routed(job) == {"a": ("Joining", None)}, "the other worker is of the life before"
    second.renew()
    assert routed(job) == {"a": ("Admitted", 0)}
    shard.incomplete = "half"
    first.renew()
    second.renew()
    assert routed(job) == {"a": ("Standing", None)}
    shard.incomplete = None
    first.renew()
    second.renew()
    assert routed(job)["a"] == ("Admitted", 0)
    first.close()
    assert routed(job) == {"a": ("Standing", None)}


def test_an_engine_that_dies_before_it_was_counted_is_left_out(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(2)]
    fleet = fleet_of(engines)
    engines[1].dead = True
    with pytest.raises(wc.WeightcastError, match="not installed by 1 of 2 engines.*e1 has gone"):
        fleet.update(version(1))
    fleet.update(version(2))
    assert engines[0].serves() == 2
    engines[1].start()
    fleet.update(version(3))
    assert [engine.serves() for engine in engines] == [3, 3]


def test_an_engine_that_hangs_when_it_is_counted_ends_the_update_by_its_deadline(job) -> None:
    engines, goes_on = [Engine(job, name=f"e{n}") for n in range(2)], threading.Event()
    fleet = Fleet(engines, job.ask_fleet, {}, holder="t", pause="abort", deadline=0.5)
    fleet.update(version(1))
    gone_on = []
    engines[1].strikes = lambda step: gone_on.append(goes_on.wait(SOON))
    with pytest.raises(wc.WeightcastError, match="e1 may serve and does not answer"):
        fleet.update(version(2))
    assert gone_on == [], "it hung all the while"
    assert engines[0].serves() == 1
    engines[1].strikes = lambda step: None
    goes_on.set()
    fleet.update(version(3))
    assert [engine.serves() for engine in engines] == [3, 3]
    fleet.close()


def test_an_engine_whose_requests_outlast_the_deadline_goes_on_with_them(job) -> None:
    engines, end = [Engine(job, name=f"e{n}") for n in range(2)], threading.Event()
    fleet = Fleet(engines, job.ask_fleet, {}, holder="t", pause="wait", deadline=0.5)
    fleet.update(version(1))

    def waits(mode: str) -> None:
        assert mode == "wait"
        engines[1].stopped = True
        end.wait(SOON)

    engines[1].pause = waits
    with pytest.raises(wc.WeightcastError, match="was given up.*e1: .*requests that were under way"):
        fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [1, 1] and not end.is_set()
    end.set()
    fleet.update(version(3))
    assert [engine.serves() for engine in engines] == [3, 3]
    fleet.close()


def test_an_engine_that_starts_with_more_workers_is_counted_anew(job, fleet_of) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(2)]
    fleet = fleet_of(engines)
    fleet.update(version(1))
    engines[1].start(workers=3)
    fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [2, 2]


def test_an_engine_that_starts_with_more_workers_within_an_update_is_not_taken_for_prepared(job) -> None:
    engines = [Engine(job, name=f"e{n}") for n in range(2)]

    def grows(step: str) -> None:
        if step == "order":
            engines[1].strikes = lambda step: None
            engines[1].start(workers=3)

    engines[1].strikes = grows
    fleet = Fleet(engines, job.ask_fleet, {}, holder="t", pause="abort", deadline=0.5)
    with pytest.raises(wc.WeightcastError, match="it has 3 workers, and had 2 when the update began"):
        fleet.update(version(1))
    assert [engine.serves() for engine in engines] == [0, 0]
    fleet.update(version(2))
    assert [engine.serves() for engine in engines] == [2, 2]
    fleet.close()
