"""What a trainer is told of an update's times: fetch and pause apart. The clock stands still but for the steps
that a test says take long."""

from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from weightcast.adapters.engine.engines import Engines  # noqa: E402
from weightcast.adapters.engine.times import EngineTimes  # noqa: E402
from weightcast.adapters.engine.trainer import Publisher, TrainerSettings  # noqa: E402

from . import test_fleet  # noqa: E402
from .test_engine_calls import CUT, FETCHED, NO, Bare, Client  # noqa: E402
from .test_fleet import fleet_of, job, straight, version  # noqa: E402, F401


class Clock:
    """Goes on by the seconds that a step takes."""

    def __init__(self, **steps: float) -> None:
        self.steps, self.now = steps, 100.0

    def step(self, name: str) -> None:
        self.now += self.steps.get(name, 0.0)


def clocked(monkeypatch: pytest.MonkeyPatch, **steps: float) -> Clock:
    clock = Clock(**steps)
    hands = SimpleNamespace(
        monotonic=lambda: clock.now, monotonic_ns=lambda: int(clock.now * 1e9), sleep=lambda seconds: None
    )
    for module in ("engines", "fleet", "line", "times"):
        monkeypatch.setattr(f"weightcast.adapters.engine.{module}.time", hands)
    return clock


def take_time(client: Bare, clock: Clock) -> None:
    """Has each step of a client of `test_engine_calls` take its time."""
    come = client.come

    def later(step: str, *told: Any) -> None:
        clock.step(step)
        come(step, *told)

    client.come = later  # type: ignore[method-assign]


def by_calls(clock: Clock, client: Bare, staged: bool = True, error: str | None = None) -> EngineTimes:
    take_time(client, clock)
    engines = Engines([client], "me")
    for _ in range(2):  # the times are those of the last update
        if error is None:
            engines.update(2, staged=staged, pause="abort", deadline=60.0)
        else:
            with pytest.raises((RuntimeError, wc.WeightcastError), match=error):
                engines.update(2, staged=staged, pause="abort", deadline=60.0)
    (times,) = engines.times
    if error is None:
        clock.now += 64.0
        assert engines.times == [times], "an engine that goes on is paused no longer"
    return times


STEPS = {"begin": 0.5, "fetch": 2.0, "states": 1.0, "take": 0.25, "pause": 4.0, "install": 8.0, "resume": 16.0}


def test_a_fetch_beside_the_parameters_is_no_part_of_the_pause(monkeypatch) -> None:
    assert by_calls(clocked(monkeypatch, **STEPS), Client()) == EngineTimes("http://e", 3.0, 28.0, 31.75)


def test_a_fetch_in_place_is_part_of_the_pause(monkeypatch) -> None:
    times = by_calls(clocked(monkeypatch, **STEPS), Client(), staged=False)
    assert times == EngineTimes("http://e", 2.0, 30.0, 30.75)


def test_an_engine_that_nobody_can_pause_was_not_paused(monkeypatch) -> None:
    assert by_calls(clocked(monkeypatch, **STEPS), Bare()) == EngineTimes("http://e", 2.0, 0.0, 10.5)


def test_an_engine_that_stands_still_has_been_paused_so_far(monkeypatch) -> None:
    client = Client(says=[[FETCHED], [CUT], [CUT], [FETCHED], [CUT]], install=NO)
    clock = clocked(monkeypatch, pause=4.0, install=8.0)
    times = by_calls(clock, client, error="no")
    assert times == EngineTimes("http://e", 0.0, 20.0, 20.0)


def test_a_fetch_that_failed_has_no_time(monkeypatch) -> None:
    times = by_calls(clocked(monkeypatch, fetch=2.0, abandon=1.0), Client(fetch=NO), error="no")
    assert times == EngineTimes("http://e", None, 0.0, 3.0)


def engine_of(core: Any, clock: Clock, name: str, **steps: float) -> test_fleet.Engine:
    own = Clock(**steps)

    def strikes(step: str) -> None:
        clock.now += own.steps.get(step, 0.0)

    return test_fleet.Engine(core, strikes, name)


def test_a_fleet_tells_the_times_of_each_engine(job, fleet_of, monkeypatch) -> None:  # noqa: F811
    clock = clocked(monkeypatch)
    # Each of its two workers takes so long.
    engine = engine_of(job, clock, "e", fetch=1.0, install=0.5, begin=0.25)
    fleet = fleet_of([engine])
    assert fleet.times == []
    for number in (1, 2):
        fleet.update(version(number))
        assert fleet.times == [EngineTimes("e", 2.0, 1.0, 3.5)]


def test_an_update_without_a_fetch_has_no_time_of_the_last_one(job, fleet_of, monkeypatch) -> None:  # noqa: F811
    engine = engine_of(job, clocked(monkeypatch), "e", fetch=1.0)
    fleet = fleet_of([engine])
    fleet.update(version(1))
    engine.failures = {"read_layout": 1}
    with pytest.raises(wc.WeightcastError, match="given up"):
        fleet.update(version(2))
    assert [times.fetch_s for times in fleet.times] == [None]


def test_an_engine_that_keeps_its_version_was_not_paused(job, fleet_of, monkeypatch) -> None:  # noqa: F811
    clock = clocked(monkeypatch)
    engine = engine_of(job, clock, "e", arrived=1.0)
    engine.failures = {"fetch": 1}
    fleet = fleet_of([engine])
    with pytest.raises(wc.WeightcastError, match="given up"):
        fleet.update(version(1))
    (times,) = fleet.times
    assert (times.engine, times.paused_s) == ("e", 0.0)


def test_an_update_that_was_not_begun_has_no_times_of_the_last_one(job, fleet_of, monkeypatch) -> None:  # noqa: F811
    fleet = fleet_of([engine_of(job, clocked(monkeypatch), "e")])
    fleet.update(version(1))
    assert len(fleet.times) == 1

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet, "_workers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fleet.update(version(2))
    assert fleet.times == []


def test_times_are_told_in_words() -> None:
    assert str(EngineTimes("e", 1.25, 0.05, 1.5)) == (
        "e: fetched in 1.250 s, paused for 0.050 s, 1.500 s in all"
    )
    assert str(EngineTimes("e", None, 0.0, 0.5)).startswith("e: nothing fetched, paused")


class Whole(Client):
    """Its workers hold what is sent at once."""

    def states(self) -> Any:
        self.says = [[FETCHED]]
        return super().states()


def test_a_trainer_has_the_times_of_the_version_that_it_sent_last(monkeypatch, caplog) -> None:
    clock = clocked(monkeypatch, fetch=2.0, install=3.0)
    client = Whole()
    take_time(client, clock)
    model = torch.nn.Linear(2, 2)
    with wc.serve() as server:
        settings = TrainerSettings(server=server.address, model="m", deadline=60.0)
        publisher = Publisher(settings, rank=0, clients=client, source=model)
        assert publisher.times == []
        with caplog.at_level("INFO", logger="weightcast"):
            publisher.send(2)
        publisher.close()
    assert publisher.times == [EngineTimes("http://e", 2.0, 3.0, 5.0)]
    assert "version 2: http://e: fetched in 2.000 s, paused for 3.000 s, 5.000 s in all" in caplog.text
