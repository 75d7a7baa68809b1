"""A trainer's rank and its engines: what is published, what engines are told, and what is taken back, call by call."""

from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import Settings

torch = pytest.importorskip("torch")

from weightcast.adapters.catalog import Entry  # noqa: E402
from weightcast.adapters.engine import trainer as module  # noqa: E402
from weightcast.adapters.engine.trainer import Publisher, TrainerSettings  # noqa: E402

NO = RuntimeError("no")


class Rig:
    """In the place of what a publisher uses: notes all calls. `fails` says what a call raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        self.fails: dict[str, Exception] = {}
        self.publishes = True
        monkeypatch.setattr(module, "open", self.open)
        monkeypatch.setattr(module, "source_of", self.source_of)
        monkeypatch.setattr(module, "Engines", lambda clients, holder: self.noting("engines", clients, holder, times=[]))
        monkeypatch.setattr(module, "Fleet", lambda *told, **named: self.noting("fleet", *told, named, times=[]))

    def come(self, *said: Any) -> None:
        self.log.append(said if len(said) > 1 else said[0])
        if said[0] in self.fails:
            raise self.fails[said[0]]

    def noting(self, name: str, *made: Any, **values: Any) -> Any:
        self.come(name, *made)
        rig = self

        class Noting(SimpleNamespace):
            def __getattr__(self, method: str) -> Any:
                if method.startswith("_"):
                    raise AttributeError(method)
                return lambda *told, **named: rig.come(f"{name} {method}", *told, *([named] if named else []))

        return Noting(**values)

    def open(self, *told: Any, **named: Any) -> Any:
        core = SimpleNamespace(ask_fleet="the register")
        return self.noting("open", *told, named, _core=core, epoch=6)

    def source_of(self, *told: Any) -> Any:
        return self.noting(
            "source", *told, publishes=self.publishes, replica=lambda name: wc.Replica(name), layout=lambda: "layout",
            catalog=lambda: {"w": Entry((2, 3), "F32")},
        )

    def did(self) -> list[Any]:
        found = list(self.log)
        self.log.clear()
        return found

    def publisher(self, rank: int = 0, clients: Any = "client", **settings: Any) -> Publisher:
        return Publisher(TrainerSettings(**{"model": "m", "server": "s", "deadline": 2.0} | settings), rank=rank, clients=clients, source="it")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


GIB = 1 << 30
OPEN = ("open", "m", wc.Replica("trainer"), {"role": "trainer", "epoch": "new", "server": "s"})
REGISTER = ("open register", "layout", {"deadline": 2.0})
TOLD = {name: getattr(Settings(), name) for name in Settings.__dataclass_fields__} | {
    "model": "m", "server": "s", "catalog": {"w": [[2, 3], "F32"]},
}


def made(clients: Any) -> list[Any]:
    return [("engines", clients, "trainer of m"), ("source", "it", 0, GIB), OPEN, REGISTER, ("engines join", TOLD)]


def orderly() -> Any:
    return SimpleNamespace(order=None)


def test_a_trainer_joins_and_has_its_engines_join(rig: Rig) -> None:
    rig.publisher(clients=["a", "b"])
    assert rig.did() == made(["a", "b"])
    rig.publisher(clients=("a",))
    assert rig.did() == made(["a"])
    rig.publisher(1)
    assert rig.did() == [("engines", ["client"], "trainer of m"), ("source", "it", 1, GIB), OPEN, REGISTER], "rank 0 alone talks to engines"
    rig.publishes = False
    rig.publisher(1)
    assert rig.did() == [("engines", ["client"], "trainer of m"), ("source", "it", 1, GIB)]
    with pytest.raises(wc.Misuse, match="^source is missing: a torch module, "):
        Publisher(TrainerSettings(), rank=0, clients="c", source=None)


@pytest.mark.parametrize(("settings", "told"), [
    ({"engine": {"catalog": {"a": [[1], "F32"]}}}, {"catalog": {"a": [[1], "F32"]}}),
    ({"engine": {"prefix": "p."}}, {"prefix": "p.", "catalog": None}),
    ({"rules": lambda layout: None}, {"catalog": None}),
    ({"engine": {"server": "other", "landing": "in_place"}}, {"server": "other", "landing": "in_place"}),
])
def test_what_engines_are_told(rig: Rig, settings: Any, told: Any) -> None:
    rig.publisher(**settings)
    assert rig.did()[-1] == ("engines join", TOLD | told)


def test_rules_change_the_layout_before_it_is_registered(rig: Rig) -> None:
    rig.publisher(rules=lambda layout: rig.come("rules", layout), budget=5, name="n")
    assert rig.did()[1:5] == [("source", "it", 0, 5), (*OPEN[:2], wc.Replica("n"), OPEN[3]), ("rules", "layout"), REGISTER]


FLEET = {"holder": "trainer of m", "pause": "keep", "deadline": 2.0}


def test_engines_that_take_orders_are_a_fleet(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    clients = [orderly(), orderly()]
    publisher = rig.publisher(clients=clients, pause="keep")
    assert rig.did() == [*made(clients), ("fleet", clients, "the register", TOLD, FLEET), ("fleet bring", None)]
    assert publisher.send() == 1
    assert rig.did() == ["source refresh", ("open publish", 1, {"deadline": 2.0}), ("fleet update", {"epoch": 6, "number": 1}),
                         ("open list", {"deadline": 2.0}), ("open unpublish", {"deadline": 2.0})]
    publisher.close()
    assert rig.did() == ["fleet close", "open close"]
    rig.fails = {"fleet bring": wc.WeightcastError("nothing is begun")}
    rig.publisher(clients=clients)
    rig.did()
    assert "engines stay as they are until the next version: nothing is begun" in caplog.text
    for others, settings in (([orderly(), "plain"], {}), (clients, {"engine": {"landing": "in_place"}})):
        rig.publisher(clients=others, **settings)
        assert rig.did()[-1][0] == "engines join", "no fleet"


def test_a_version_is_published_while_engines_take_it(rig: Rig) -> None:
    publisher = rig.publisher(pause="keep")
    rig.did()
    for version, asked in ((1, None), (2, None), (9, 9), (10, None)):
        assert publisher.send(asked) == publisher.version == version
        assert rig.did() == [
            "source refresh", ("open publish", version, {"deadline": 2.0}),
            ("engines update", version, {"staged": True, "pause": "keep", "deadline": 2.0}),
            ("open list", {"deadline": 2.0}), ("open unpublish", {"deadline": 2.0}),
        ]
    publisher = rig.publisher(engine={"landing": "in_place"})
    publisher.send()
    assert ("engines update", 1, {"staged": False, "pause": "abort", "deadline": 2.0}) in rig.did()


def test_other_ranks_wait_for_the_one_that_talks_to_engines(rig: Rig) -> None:
    publisher = rig.publisher(1)
    rig.did()
    assert publisher.send() == 1
    assert rig.did() == ["source refresh", ("open publish", 1, {"deadline": 2.0}), ("open list", {"deadline": 16.0}), ("open unpublish", {"deadline": 16.0})]
    rig.publishes = False
    publisher = rig.publisher(1)
    rig.did()
    assert publisher.send(4) == 4 and rig.did() == ["source refresh"], "it gathers with the others"
    publisher.close()
    assert rig.did() == []


@pytest.mark.parametrize(("step", "calls"), [
    ("source refresh", ["source refresh"]),
    ("open publish", ["source refresh", "open publish"]),
    ("engines update", ["source refresh", "open publish", "engines update", "open list", "open unpublish"]),
    ("open list", ["source refresh", "open publish", "engines update", "open list", "open unpublish"]),
    ("open unpublish", ["source refresh", "open publish", "engines update", "open list", "open unpublish"]),
])
def test_a_step_that_fails_leaves_nothing_published(rig: Rig, step: str, calls: list[str]) -> None:
    publisher = rig.publisher()
    rig.did()
    rig.fails = {step: NO}
    with pytest.raises(RuntimeError, match="no"):
        publisher.send()
    assert [one if isinstance(one, str) else one[0] for one in rig.did()] == calls
    rig.fails = {}
    assert publisher.send() == 2, "that number was perhaps published"


@pytest.mark.parametrize(("step", "leaves"), [
    ("open register", ("open close", {"deadline": 1.0})), ("engines join", "open close"), ("fleet", "open close"), ("fleet bring", "open close"),
])
def test_a_start_that_fails_leaves_the_job(rig: Rig, step: str, leaves: Any) -> None:
    """Whoever tries again does so under the same name."""
    rig.fails = {step: NO}
    with pytest.raises(RuntimeError, match="no"):
        rig.publisher(clients=[orderly()])
    assert rig.did()[-1] == leaves


def test_closing_again_does_nothing(rig: Rig) -> None:
    publisher = rig.publisher()
    rig.did()
    publisher.close()
    publisher.close()
    assert rig.did() == ["open close"]
    assert publisher.send() == 1 and rig.did() == ["source refresh"]


def test_an_adapter_goes_into_slots_of_its_name(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Adapter", str)
    client = SimpleNamespace(slot=lambda name: f"slot {name}")
    rig.publisher(clients=[client, client])
    assert rig.did()[0] == ("engines", ["slot m", "slot m"], "trainer of m")
    with pytest.raises(wc.Misuse, match="^SimpleNamespace takes no adapters; use HTTPEngine or LocalEngine of weightcast.adapters.vllm$"):
        rig.publisher(clients=SimpleNamespace())
