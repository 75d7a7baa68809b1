"""Loops of other libraries, without these: what each of their events has published or taken back, and in which order."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

from weightcast.adapters.trainers import trl  # noqa: E402

NAMED = Iterator[tuple[str, torch.Tensor]]


class Steps:
    """Notes what a loop has called."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.log.append((name, *given))

    def did(self) -> list[Any]:
        found, self.log = self.log, []
        return found


def callback(monkeypatch: pytest.MonkeyPatch, library: str, base: str, package: str) -> Any:
    ours = f"weightcast.adapters.trainers.{library}"
    stand_in(monkeypatch, package.partition(".")[0], {package: {base: object}}, [ours])
    made = __import__(ours, fromlist=["PublishSteps"]).PublishSteps("policy", every=3)
    assert made.steps._model == "policy" and made.steps._every == 3
    made.steps = Steps()
    return made


def test_a_trainer_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts a step after it has told of it."""
    publish = callback(monkeypatch, "transformers", "TrainerCallback", "transformers")
    state, control, args = SimpleNamespace(global_step=7), SimpleNamespace(should_training_stop=False), SimpleNamespace(load_best_model_at_end=True)
    publish.on_train_begin(args, state, control, model="model", optimizer="other")
    assert publish.steps.did() == [("begin", "model", 7)]
    publish.on_pre_optimizer_step(args, state, control)
    publish.on_optimizer_step(args, state, control)
    assert publish.steps.did() == [("before",), ("after", 8)]
    publish.on_epoch_end(args, state, control)
    assert publish.steps.did() == [], "training goes on"
    control.should_training_stop = True
    publish.on_epoch_end(args, state, control)
    assert publish.steps.did() == [("before",)], "the best weights are about to be loaded"
    args.load_best_model_at_end = False
    publish.on_epoch_end(args, state, control)
    assert publish.steps.did() == []
    publish.on_train_end(args, state, control)
    assert publish.steps.did() == [("end",)]


def test_a_trainer_of_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches may make one step, and a manual optimization several steps of one batch."""
    publish = callback(monkeypatch, "lightning", "Callback", "lightning.pytorch")
    trainer = SimpleNamespace(global_step=5, strategy=SimpleNamespace(model=None))
    publish.on_train_start(trainer, "module")
    trainer.strategy.model = "wrapped"
    publish.on_train_start(trainer, "module")
    assert publish.steps.did() == [("begin", "module", 5), ("begin", "wrapped", 5)]
    publish.on_train_batch_end(trainer, "module", None, None, 0)
    assert publish.steps.did() == [], "gradients are accumulated"
    publish.on_before_optimizer_step(trainer, "module", "optimizer")
    trainer.global_step = 6
    publish.on_train_batch_end(trainer, "module", None, None, 1)
    publish.on_train_batch_end(trainer, "module", None, None, 2)
    trainer.global_step = 9
    publish.on_train_batch_end(trainer, "module", None, None, 3)
    assert publish.steps.did() == [("before",), ("after", 6), ("after", 9)]
    publish.on_train_end(trainer, "module")
    trainer.global_step = 0
    publish.on_train_start(trainer, "module")
    trainer.global_step = 1
    publish.on_train_batch_end(trainer, "module", None, None, 0)
    assert publish.steps.did() == [("end",), ("begin", "wrapped", 0), ("after", 1)], "another round counts anew"


def tensors(value: float) -> NAMED:
    yield "w", torch.full((3,), value)
    yield "b", torch.full((2,), -value)


class Publisher:
    """The trainer of live engines: notes what the source holds as it sends."""

    def __init__(self, settings: Any, *, rank: int, clients: Any, source: Any) -> None:
        assert rank == 0
        self.settings, self.clients, self.source, self.version, self.sent, self.closed = settings, clients, source, 0, [], 0

    def send(self) -> int:
        self.source.refresh()
        self.sent.append({name: t.clone() for name, t in self.source._tensors.items()})
        self.version += 1
        return self.version

    def close(self) -> None:
        self.closed += 1


def test_what_trl_hands_out_is_the_next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl, "Publisher", Publisher)
    settings = trl.TrainerSettings(budget=40)
    transfer = trl.WeightTransfer("engines", settings)
    transfer.init_weight_transfer()
    assert transfer.version == 0
    for version in (1, 2, 3):
        transfer.pause()
        transfer.send_weights(tensors(version))
        transfer.resume()
        assert transfer.version == version
    publisher = transfer._publisher
    assert (publisher.settings, publisher.clients) == (settings, "engines") and publisher.source._pipeline._budget == 40
    assert [one["w"].tolist() for one in publisher.sent] == [[n] * 3 for n in (1.0, 2.0, 3.0)]
    assert [one["b"].tolist() for one in publisher.sent] == [[-n] * 2 for n in (1.0, 2.0, 3.0)]
    transfer.destroy()
    transfer.destroy()
    assert publisher.closed == 1 and transfer.version == 0
    transfer.send_weights(iter([("another", torch.ones(5))]))
    assert transfer._publisher is not publisher and transfer._publisher.sent[0]["another"].tolist() == [1.0] * 5


# verl


class Weights:
    """What a worker holds, in a job that keeps the versions that were published."""

    def __init__(self, log: list[Any], model: str, options: dict[str, Any], source: Any = None) -> None:
        self.log, self.model, self.options, self.source, self.version = log, model, options, source, None
        self.brings: int | None = None

    def take_back(self, **named: Any) -> None:
        self.log.append(("take_back", named))

    def publish(self, version: int, **named: Any) -> None:
        self.source.refresh()
        self.log.append(("publish", version, {n: t.clone() for n, t in self.source._tensors.items()}, named))

    def wait(self, condition: Any, **named: Any) -> None:
        self.log.append(("wait", repr(condition), named))

    def update(self, selector: Any, **named: Any) -> None:
        self.log.append(("update", repr(selector), named))
        self.version = self.brings


@pytest.fixture
def verl(monkeypatch: pytest.MonkeyPatch) -> Any:
    log: list[Any] = []
    registry = SimpleNamespace(register=lambda name: lambda kind: log.append(("registered", name)) or kind)
    stand_in(monkeypatch, "verl", {"verl.checkpoint_engine.base": {"CheckpointEngine": object, "CheckpointEngineRegistry": registry}},
             ["weightcast.adapters.verl", "weightcast.adapters.verl.engine"])
    held: list[Weights] = []

    def joins(source: Any, model: str = "policy", **options: Any) -> Weights:
        held.append(Weights(log, model, options, source))
        return held[-1]

    stand_in(monkeypatch, "ray", {"ray": {}}, [f"weightcast.adapters.ray{rest}" for rest in ("", ".servers", ".sync", ".weights", ".where", ".book", ".notices")])
    monkeypatch.setitem(__import__("sys").modules, "weightcast.adapters.ray", SimpleNamespace(
        Weights=Weights, trainer=joins, rollout=joins, serve=lambda count: log.append(("serve", count))))
    import weightcast.adapters.verl.engine as module

    assert log == [("registered", "weightcast")]
    log.clear()
    return SimpleNamespace(log=log, held=held, engine=module.WeightcastCheckpointEngine)


def run(call: Any) -> Any:
    return asyncio.run(call)


def test_versions_come_after_all_that_workers_hold(verl: Any) -> None:
    topology = verl.engine.build_topology(2, 3, [{"version": 4, "servers": 1}, {"version": 9, "servers": 3}, {"version": 0, "servers": 2}])
    assert topology == ({"version": [10, 10]}, {"version": [10, 10, 10]}) and verl.log == [("serve", 3)]
    assert verl.engine(100, servers=5).prepare() == {"version": 0, "servers": 5}


def test_the_first_rank_publishes_each_version_and_others_take_part_in_gathering(verl: Any) -> None:
    master, other = verl.engine(64, is_master=True, model="m", deadline=9.0, way="tcp"), verl.engine(64)
    given = tensors(1)
    assert run(other.send_weights(given)) is None and next(given, None) is None and verl.log == []
    for version, value in ((3, 1.0), (5, 2.0)):
        master.init_process_group(version)
        assert run(master.send_weights(tensors(value))) == {"weightcast/version": float(version)}
        assert master.prepare()["version"] == version
        master.finalize()
    [weights] = verl.held
    assert (weights.model, weights.options) == ("m", {"name": "actor", "way": "tcp"}) and weights.source._pipeline._budget == 64
    told = [(one[0], *one[1:2]) if one[0] == "publish" else one for one in verl.log]
    assert told == [("publish", 3), ("take_back", {"deadline": 9.0}), ("publish", 5)], "memory is given back before it is filled"
    assert [one[2]["w"].tolist() for one in verl.log if one[0] == "publish"] == [[1.0] * 3, [2.0] * 3]


def test_a_rollout_yields_a_version_once_it_is_here(verl: Any) -> None:
    engine = verl.engine(64, model="m", deadline=9.0)
    engine.init_process_group(3)

    async def receive() -> list[str]:
        return [name async for name, _ in engine.receive_weights()]

    with pytest.raises(wc.WeightcastError, match="version 3 of m was asked for, and None is here"):
        run(receive())
    [weights] = verl.held
    assert verl.log == [("update", repr(wc.exact(3)), {"deadline": 9.0})], "the first update waits by itself"
    catalog = {"w": wc.adapters.catalog.Entry((2, 3), "BF16"), "s": wc.adapters.catalog.Entry((), "I64")}
    listed = engine._layout(SimpleNamespace(catalog=lambda deadline: catalog))
    assert len(listed) == 2 and engine._tensors["w"].dtype == torch.bfloat16 and engine._tensors["s"].shape == ()
    weights.brings = 3
    assert run(receive()) == ["w", "s"] and engine.prepare()["version"] == 3
    verl.log.clear()
    engine.init_process_group(4)
    weights.brings = 4
    run(receive())
    assert verl.log == [("wait", repr(wc.available(4)), {"deadline": 9.0}), ("update", repr(wc.exact(4)), {"deadline": 9.0})]
    assert verl.held == [weights]
