"""vLLM's weight-transfer interface has changed its form several times. Ours against stand-ins of each, without vLLM:
what a form's own base classes and calls demand. (The installed vLLM: `make test-vllm`.)"""

import sys
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import Settings

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

OURS = ("forms", "worker", "trainer", "serving", "loader")


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


class WorkerThatPrepares(Worker):
    """Of 0.22 to 0.24: its engine hears of the transfer alone."""

    def __init__(self) -> None:
        self._weight_update_active, self._is_checkpoint_format = False, True
        self.vllm_config = SimpleNamespace(parallel_config="how it is spread", speculative_config=None)
        self.device, self.rank = "a GPU", 0
        self.model_runner = SimpleNamespace(model=torch.nn.Linear(1, 1))
        #: What it did to the model by itself.
        self.did: list[str] = []

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.weight_transfer_engine.init_transfer_engine(self.weight_transfer_engine.parse_init_info(init_info))

    def start_weight_update(self, is_checkpoint_format: bool = True) -> None:
        if self._weight_update_active:
            raise RuntimeError("start_weight_update called while a weight update is already active.")
        if is_checkpoint_format:
            self.did.append("initialize_layerwise_reload")
        self._is_checkpoint_format, self._weight_update_active = is_checkpoint_format, True

    def update_weights(self, update_info: dict[str, Any]) -> None:
        if not self._weight_update_active:
            raise RuntimeError("start_weight_update must be called before update_weights.")
        self.did.append(f"transfer on {self.device}")

    def finish_weight_update(self) -> None:
        if not self._weight_update_active:
            raise RuntimeError("start_weight_update must be called before finish_weight_update.")
        if self._is_checkpoint_format:
            self.did.append("finalize_layerwise_reload")
        self._weight_update_active, self._is_checkpoint_format = False, True


class EngineOfTheTransfer(ABC):
    """The worker's side of 0.22 to 0.24."""

    def __init__(self, config: Any, parallel_config: Any, model: Any) -> None:
        self.config, self.parallel_config, self.model = config, parallel_config, model

    def parse_init_info(self, init_dict: dict[str, Any]) -> Any:
        return self.init_info_cls(**init_dict)

    def parse_update_info(self, update_dict: dict[str, Any]) -> Any:
        return self.update_info_cls(**update_dict)

    @abstractmethod
    def init_transfer_engine(self, init_info: Any) -> None: ...

    @abstractmethod
    def receive_weights(self, update_info: Any, load_weights: Any) -> None: ...

    @abstractmethod
    def shutdown(self) -> None: ...

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None: ...


class Engine(ABC):
    """The worker's side, the same in all forms from 0.25 on."""

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
    """Of 0.25 to 0.27: a trainer's call is a method of the worker's class, as before."""

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None: ...


class Trainer(ABC):
    """Of 0.27 to 0.33."""

    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True) -> None:
        raise AssertionError("its parameters change; ours sets what it needs by itself")

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any: ...

    @abstractmethod
    def send_weights(self) -> None: ...


class TrainerWithConfig(Trainer):
    """Of 0.26: the backend's configuration comes first."""

    @classmethod
    @abstractmethod
    def trainer_init(cls, config: Any, init_info: Any, *, client: Any, source: Any) -> Any: ...


#: By the first vLLM that has it: the base classes of workers' engines and of trainers, and the worker.
FORMS = {
    "0.22": (EngineOfTheTransfer, None, WorkerThatPrepares),
    "0.25": (EngineThatSends, None, Worker),
    "0.26": (EngineThatSends, TrainerWithConfig, Worker),
    "0.27": (EngineThatSends, Trainer, Worker),
    "0.28": (Engine, Trainer, Worker),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stand-in of a form in the place of vLLM."""
    engine, trainer, worker = FORMS[request.param]
    base = {"WeightTransferEngine": engine}
    if trainer is not None:
        base |= {"TrainerWeightTransferEngine": trainer, "TrainerInitInfo": TrainerInitInfo}
    everything = {name: value for kind in reversed(worker.__mro__[:-1]) for name, value in vars(kind).items()}
    contents: dict[str, dict[str, Any]] = {
        "vllm.distributed.weight_transfer.base": base,
        "vllm.distributed.parallel_state": {"get_world_group": lambda: SimpleNamespace(world_size=1)},
        "vllm.v1.worker.gpu_worker": {"Worker": type("Worker", (), everything)},
        "vllm.config": {"get_current_vllm_config": lambda: None, "set_current_vllm_config": current},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": object},
    }
    stand_in(monkeypatch, "vllm", contents, [f"weightcast.adapters.vllm.{name}" for name in OURS])
    CURRENT[:] = [None]
    return str(request.param)


#: The configuration that vLLM was told is the current one.
CURRENT: list[Any] = [None]


@contextmanager
def current(config: Any) -> Any:
    CURRENT.append(config)
    yield
    CURRENT.pop()


def made(form: str, config: Any = None, model: Any = None) -> Any:
    """The worker's engine, as this form of vLLM makes it."""
    from weightcast.adapters.vllm.worker import WeightcastEngine

    return WeightcastEngine(None, config, model) if form == "0.22" else WeightcastEngine(None, config, "cpu", model)


def test_the_worker_engine_is_complete(form: str) -> None:
    engine = made(form)
    with pytest.raises(Exception, match="has not joined a job"):
        engine.start_weight_update()
    with pytest.raises(Exception, match="has not joined a job"):
        engine.receive_weights(engine.update_info_cls())


def test_trainers_that_call_the_workers_class_send_by_it(form: str) -> None:
    from weightcast.adapters.vllm.worker import WeightcastEngine

    calls: list[Any] = []
    client = Client(calls)
    weights = {"a": torch.zeros(3), "b": torch.ones(2)}
    with pytest.raises(wc.Misuse, match='has no "client"'):
        WeightcastEngine.trainer_init({})
    for nothing in ({}, {"group": None}, SimpleNamespace(group=3)):
        with pytest.raises(wc.Misuse, match="WeightcastEngine.trainer_init"):
            WeightcastEngine.trainer_send_weights(iter(()), nothing)
    with wc.serve() as server:
        group = WeightcastEngine.trainer_init({"client": client, "server": server.address, "model": "named"})
        WeightcastEngine.trainer_send_weights(iter(weights.items()), {"group": group})
        WeightcastEngine.trainer_send_weights(iter(weights.items()), SimpleNamespace(group=group, packed=True))
        assert group.version == 2
        group.destroy()
    assert calls == ["init_weight_transfer_engine", *UPDATE, *UPDATE]
    assert client.told["model"] == "named" and client.told["server"] == server.address


UPDATE = ["start_weight_update", "update_weights", "finish_weight_update"]


class Client:
    """Any of vLLM's own: the calls of its interface alone."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self.told = info
        self._calls.append("init_weight_transfer_engine")

    def __getattr__(self, name: str) -> Any:
        if name not in UPDATE:
            raise AttributeError(name)
        return lambda *_: self._calls.append(name)


def test_the_trainer_is_made_as_the_form_makes_it(form: str) -> None:
    from weightcast.adapters.vllm.trainer import TrainerInfo, WeightcastTrainer

    calls: list[str] = []
    module = torch.nn.Linear(4, 4)
    with wc.serve() as server:
        info = TrainerInfo(rank=0, server=server.address)
        before = ["a configuration"] if form == "0.26" else []
        trainer = WeightcastTrainer.trainer_init(*before, info, client=Client(calls), source=module)
        assert trainer.is_sender and not TrainerInfo(rank=1).is_sender
        assert trainer.send_weights() == 1
        assert trainer.send_weights(version=5) == 5
        trainer.shutdown()
    assert calls == ["init_weight_transfer_engine", *UPDATE, *UPDATE]


def test_a_worker_with_incomplete_weights_runs_no_model(form: str) -> None:
    worker = sys.modules["vllm.v1.worker.gpu_worker"].Worker()
    worker.weight_transfer_engine = made(form)
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
    found = made(form, SimpleNamespace(speculative_config=None), torch.nn.Linear(1, 1))
    found.vllm_config = SimpleNamespace(speculative_config=None)  # as a join notes
    found.init_transfer_engine(Settings())
    assert found.base_version() is None
    found._shard.installed = 5
    return found


of_early = pytest.mark.parametrize("form", ["0.22"], indirect=True)


@pytest.fixture
def early(form: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker of 0.22, of which our engine is a part of a job; what is asked of that part."""
    from weightcast.adapters.vllm import worker as module

    log: list[Any] = []
    monkeypatch.setattr(module, "EngineShard", lambda *_, **__: part(log))
    monkeypatch.setattr(module, "Orders", lambda *_: SimpleNamespace(renew=lambda: None, may_serve=lambda: True))
    monkeypatch.setattr(module, "replica_of", lambda config, _: log.append(("replica of", config.parallel_config)))
    worker = sys.modules["vllm.v1.worker.gpu_worker"].Worker()
    worker.weight_transfer_engine = made(form, worker.vllm_config.parallel_config, worker.model_runner.model)
    worker.init_weight_transfer_engine({})
    assert log == [("replica of", "how it is spread")], "the engine knows what vLLM made it without"
    log.clear()
    worker.log = log
    return worker


def part(log: list[Any]) -> Any:
    """A worker's part in a job, which notes what is asked of it, and vLLM's configuration then."""
    def noting(name: str) -> Any:
        return lambda *a, **_: log.append((name, *a, CURRENT[-1]))

    state = SimpleNamespace(installed=1, incomplete=None)
    return SimpleNamespace(begin=noting("begin"), fetch=noting("fetch"), install=noting("install"), state=state,
                           check_serving=lambda: None, spoil=noting("spoil"))  # fmt: skip


@of_early
@pytest.mark.parametrize("given", [(), (True,), (False,)])
def test_an_early_worker_leaves_an_update_to_its_engine(early: Any, given: tuple) -> None:
    early.start_weight_update(**({"is_checkpoint_format": given[0]} if given else {}))
    early.update_weights(update_info={"version": 3})
    assert early._weight_update_active
    early.finish_weight_update()
    assert early.log == [("begin", None), ("fetch", 3, None), ("install", early.vllm_config)]
    assert early.did == [], "vLLM's loader, and tensors on its device, are kept out"
    assert not early._weight_update_active


@of_early
def test_an_early_worker_wants_its_calls_in_order(early: Any) -> None:
    for call in (lambda: early.update_weights(update_info={}), early.finish_weight_update):
        with pytest.raises(RuntimeError, match="start_weight_update must be called before"):
            call()
        assert early.log == []
        early._weight_update_active = False
    early.start_weight_update()
    with pytest.raises(RuntimeError, match="already active"):
        early.start_weight_update()


@of_early
def test_an_early_worker_installs_again_after_a_failure(early: Any) -> None:
    early.start_weight_update()
    early.update_weights(update_info={})
    shard = early.weight_transfer_engine._shard
    install, shard.install = shard.install, lambda: 1 / 0
    with pytest.raises(RuntimeError, match="division"):
        early.finish_weight_update()
    assert early._weight_update_active
    shard.install = install
    early.finish_weight_update()
    assert early.log[-1][0] == "install" and not early._weight_update_active


@of_early
def test_an_update_of_an_early_worker_can_be_abandoned(early: Any) -> None:
    early.start_weight_update()
    early.update_weights(update_info={"abandon": True})
    assert not early._weight_update_active
    early.start_weight_update()


def test_the_extension_makes_the_engine_of_what_the_form_does(form: str) -> None:
    from weightcast.adapters.vllm.forms import made_of

    model, config = object(), SimpleNamespace(parallel_config="spread")
    worker = SimpleNamespace(vllm_config=config, device="cpu", model_runner=SimpleNamespace(model=model))
    expected = (None, "spread", model) if form == "0.22" else (None, config, "cpu", model)
    assert made_of(worker) == expected


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
