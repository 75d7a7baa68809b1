"""vLLM's weight-transfer interface has changed its form several times. Ours against stand-ins of each, without vLLM:
what a form's own base classes and calls demand. (The installed vLLM: `make test-vllm`.)"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import Settings

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

OURS = ("worker", "trainer", "serving", "loader")


@dataclass
class TrainerInitInfo:
    rank: int = field(kw_only=True)

    @property
    def is_sender(self) -> bool:
        return self.rank == 0


class Worker:
    """vLLM's worker class, as far as ours touches it."""

    def execute_model(self) -> str:
        return "tokens"

    def sleep(self, level: int = 1) -> None: ...

    def wake_up(self, tags: list[str] | None = None) -> None: ...


class Engine(ABC):
    """The worker's side, the same in all forms that have `start_weight_update`."""

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        self.vllm_config, self.parallel_config, self.model = vllm_config, None, model

    @abstractmethod
    def init_transfer_engine(self, init_info: Any) -> None: ...

    @abstractmethod
    def start_weight_update(self) -> None: ...

    @abstractmethod
    def finish_weight_update(self) -> None: ...

    @abstractmethod
    def receive_weights(self, update_info: Any) -> None: ...

    @abstractmethod
    def shutdown(self) -> None: ...


class EngineThatSends(Engine):
    """Of mid-2026: the trainer's call is a method of the worker's class."""

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None: ...


class Trainer(ABC):
    """Of 0.32 and 0.33."""

    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True) -> None:
        raise AssertionError("its parameters change; ours sets what it needs by itself")

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any: ...

    @abstractmethod
    def send_weights(self) -> None: ...


class TrainerWithConfig(Trainer):
    """Of mid-2026: the backend's configuration comes first."""

    @classmethod
    @abstractmethod
    def trainer_init(cls, config: Any, init_info: Any, *, client: Any, source: Any) -> Any: ...


FORMS = {"0.32": (Engine, Trainer), "mid-2026": (EngineThatSends, TrainerWithConfig)}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stand-in of a form in the place of vLLM."""
    engine, trainer = FORMS[request.param]
    base = {"WeightTransferEngine": engine, "TrainerWeightTransferEngine": trainer, "TrainerInitInfo": TrainerInitInfo}
    contents: dict[str, dict[str, Any]] = {
        "vllm.distributed.weight_transfer.base": base,
        "vllm.v1.worker.gpu_worker": {"Worker": type("Worker", (), dict(vars(Worker)))},
        "vllm.config": {"get_current_vllm_config": lambda: None},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": object},
    }
    stand_in(monkeypatch, "vllm", contents, [f"weightcast.adapters.vllm.{name}" for name in OURS])
    return str(request.param)


def test_the_worker_engine_is_complete(form: str) -> None:
    from weightcast.adapters.vllm.worker import WeightcastEngine

    engine = WeightcastEngine(None, None, None, None)
    with pytest.raises(Exception, match="has not joined a job"):
        engine.start_weight_update()
    if form == "mid-2026":
        with pytest.raises(Exception, match="WeightcastTrainer"):
            WeightcastEngine.trainer_send_weights(iter(()), {})


def test_the_trainer_is_made_as_the_form_makes_it(form: str) -> None:
    from weightcast.adapters.vllm.trainer import TrainerInfo, WeightcastTrainer

    class Client:
        calls: list[str] = []

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in ("states", "pause", "resume", "take", "give_back", "order"):
                raise AttributeError(name)
            return lambda *_: self.calls.append(name)

    module = torch.nn.Linear(4, 4)
    with wc.serve() as server:
        info = TrainerInfo(rank=0, server=server.address)
        before = ["a configuration"] if form == "mid-2026" else []
        trainer = WeightcastTrainer.trainer_init(*before, info, client=Client(), source=module)
        assert trainer.send_weights() == 1
        assert trainer.send_weights(version=5) == 5
        trainer.shutdown()
    update = ["start_weight_update", "update_weights", "finish_weight_update"]
    assert Client.calls == ["init_weight_transfer_engine", *update, *update]


def test_a_worker_with_incomplete_weights_runs_no_model(form: str) -> None:
    from weightcast.adapters.vllm.worker import WeightcastEngine

    worker = sys.modules["vllm.v1.worker.gpu_worker"].Worker()
    worker.weight_transfer_engine = WeightcastEngine(None, None, None, None)
    assert worker.execute_model() == "tokens"

    class Incomplete:
        def check_serving(self) -> None:
            raise RuntimeError("incomplete")

    worker.weight_transfer_engine._shard = Incomplete()
    with pytest.raises(RuntimeError, match="incomplete"):
        worker.execute_model()


class Shard:
    """A worker's part in a job, as far as a join looks at it."""

    def __init__(
        self, settings: Any, replica: Any, read: Any, *, installed: Any = None, run: Any = None, incomplete: Any = None
    ) -> None:
        self.settings, self.installed, self.run, self.incomplete = settings, installed, run, incomplete

    @property
    def version(self) -> Any:
        return None if self.run is None else {"epoch": self.run, "number": self.installed}

    @property
    def state(self) -> Any:
        return SimpleNamespace(installed=self.installed, incomplete=self.incomplete)

    def answers(self) -> bool:
        return False

    def check_serving(self) -> None:
        if self.incomplete is not None:
            raise RuntimeError(self.incomplete)

    def install(self) -> None:
        self.installed, self.incomplete = 1, None

    def withdraw(self) -> None: ...
    def restore(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def engine(form: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that has installed version 5 of `policy`."""
    from weightcast.adapters.vllm import worker

    monkeypatch.setattr(worker, "EngineShard", Shard)
    monkeypatch.setattr(worker, "replica_of", lambda *_: None)
    made = worker.WeightcastEngine(None, SimpleNamespace(speculative_config=None), None, torch.nn.Linear(1, 1))
    made.init_transfer_engine(Settings())
    assert made.base_version() is None
    made._shard.installed = 5
    return made


def test_what_a_worker_holds_stays_known_when_it_joins_again(engine: Any) -> None:
    engine.init_transfer_engine(Settings())  # the server was started again
    assert engine.base_version() == 5
    engine.init_transfer_engine(Settings(deadline=3.0))
    assert engine.base_version() == 5
    engine._shard.incomplete = "half of two versions"
    engine.init_transfer_engine(Settings())
    with pytest.raises(RuntimeError, match="half of two"):
        engine.base_version()
    engine.finish_weight_update()
    assert engine.base_version() == 1


def test_the_base_of_another_job_is_none_that_adapters_name(engine: Any) -> None:
    engine.init_transfer_engine(Settings(job="another"))
    for _ in range(2):
        with pytest.raises(wc.Misuse, match="holds weights of another job"):
            engine.base_version()
        engine.init_transfer_engine(Settings(job="another"))
    engine.finish_weight_update()
    assert engine.base_version() == 1


def test_the_base_stays_while_adapters_are_loaded(engine: Any) -> None:
    engine._slots = SimpleNamespace(held=lambda: {"one": 5})
    with pytest.raises(wc.Misuse, match="take them out first"):
        engine.finish_weight_update()
    with pytest.raises(wc.Misuse, match="take them out first"):
        engine.init_transfer_engine(Settings(job="another"))
    assert engine.base_version() == 5
    engine.init_transfer_engine(Settings())
    engine._slots = None
    engine.finish_weight_update()
    assert engine.base_version() == 1


class Gate:
    """A worker's orders, as far as its engine asks and tells them."""

    def __init__(self) -> None:
        self.serving, self.told = True, []

    def may_serve(self) -> bool:
        return self.serving

    def slept(self) -> None:
        self.told.append("slept")

    def renew(self) -> None:
        self.told.append("renewed")


def test_a_worker_runs_its_model_only_if_its_gate_lets_it(engine: Any) -> None:
    engine.orders = Gate()
    engine.check_serving()
    engine.orders.serving = False
    with pytest.raises(wc.WeightcastError, match="stands still for an update of its fleet"):
        engine.check_serving()


def test_a_gate_hears_of_sleep_and_of_weights_that_are_back(engine: Any) -> None:
    gate = engine.orders = Gate()
    engine.before_sleep(1)
    engine.after_wake(["kv_cache"])
    assert gate.told == ["slept"]
    engine.after_wake(["weights"])
    assert gate.told == ["slept", "renewed"]
    engine.finish_weight_update()
    assert gate.told == ["slept", "renewed", "renewed"]


@pytest.mark.parametrize(("rank", "patience"), [(0, 2.0), (1, 16.0)])
def test_ranks_wait_for_the_one_that_talks_to_engines(rank: int, patience: float) -> None:
    from weightcast.adapters.engine.trainer import Publisher, TrainerSettings

    publisher, waits = object.__new__(Publisher), []
    publisher._settings, publisher._rank = TrainerSettings(deadline=2.0), rank

    def wait(*, deadline: float) -> None:
        waits.append(deadline)

    publisher._unpublish(SimpleNamespace(list=wait, unpublish=wait))
    assert waits == [patience, patience]
