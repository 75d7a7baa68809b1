"""One vLLM worker in its engine's place, without vLLM: what each of vLLM's calls has it do, in which order, and what it
refuses."""

import json
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import EngineState, Settings

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

OURS = ("forms", "worker", "serving", "loader", "extension", "trainer", "lora.steps", "lora.slots")
VERSION = {"epoch": 4, "number": 5}


class WeightTransferEngine:
    """vLLM's base class, as far as ours uses it."""

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        self.vllm_config, self.model = vllm_config, model
        self.parallel_config = getattr(vllm_config, "parallel_config", None)

    def receive_weights(self, update_info: Any) -> None:
        raise NotImplementedError

    def parse_update_info(self, info: dict[str, Any]) -> Any:
        return self.update_info_cls(**info)

    def parse_init_info(self, info: dict[str, Any]) -> Any:
        return self.init_info_cls(**info)


class Worker:
    """vLLM's worker, as far as ours wraps it: notes what is left of each call."""

    def __init__(self, log: list[Any], rank: int = 0) -> None:
        self.log, self.rank = log, rank
        self.parallel_config = SimpleNamespace(data_parallel_size=1)
        self.model_runner = SimpleNamespace(reset_lora_state=lambda: log.append("reset"))

    def execute_model(self, *arguments: Any, **named: Any) -> str:
        self.log.append(("execute", *arguments, named))
        return "tokens"

    def sleep(self, level: int = 1) -> None:
        self.log.append(("sleep", level))

    def wake_up(self, tags: list[str] | None = None) -> None:
        self.log.append(("wake up", tags))

    def add_lora(self, request: Any) -> bool:
        self.log.append(("add", request))
        return True

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self.weight_transfer_engine.init_transfer_engine(self.weight_transfer_engine.parse_init_info(info))

    def start_weight_update(self) -> None:
        self.weight_transfer_engine.start_weight_update()

    def update_weights(self, info: dict[str, Any]) -> None:
        self.weight_transfer_engine.update_weights(info)

    def finish_weight_update(self) -> None:
        self.weight_transfer_engine.finish_weight_update()


class Noting:
    """Notes each method that is called, under a name of its own. `fails` says what a call raises."""

    def __init__(self, log: list[Any], name: str, **values: Any) -> None:
        self._log, self._name, self.fails = log, name, {}
        vars(self).update(values)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def called(*arguments: Any, **named: Any) -> Any:
            self._log.append((f"{self._name} {method}", *arguments, *([named] if named else [])))
            if method in self.fails:
                raise self.fails[method]

        return called


class Shard(Noting):
    """`EngineShard`."""

    def __init__(self, log: list[Any], settings: Settings, replica: Any, read: Any, **held: Any) -> None:
        super().__init__(log, "shard", settings=settings, replica=replica, read=read, held=held, known=True)
        self.state = EngineState(held.get("installed"), None, held.get("incomplete"))
        self.version = None if held.get("run") is None else {"epoch": held["run"], "number": held["installed"]}
        log.append(("shard joins", settings.model))

    def answers(self) -> bool:
        self._log.append(("shard answers",))
        return self.known

    def check_serving(self) -> None:
        if self.state.incomplete is not None:
            raise wc.WeightcastError(self.state.incomplete)


class Gate(Noting):
    """`Orders`."""

    def __init__(self, log: list[Any], host: Any, life: int) -> None:
        super().__init__(log, "gate", host=host, life=life, serves=True)

    def may_serve(self) -> bool:
        return self.serves

    def order(self, order: Any) -> Any:
        self._log.append(("gate order", order, CURRENT[-1]))
        return {"answers": [order]}

    def performed(self, *told: Any) -> Any:
        self._log.append(("gate performed", *told))
        return {"answers": []}


CURRENT: list[Any] = [None]


@contextmanager
def current(config: Any) -> Any:
    CURRENT.append(config)
    yield
    CURRENT.pop()


class Rig:
    """A worker of an engine, everything that both are asked (`log`), and their modules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        kind = type("Worker", (), dict(vars(Worker)))
        #: A subclass with a method of its own, and one below that.
        self.below = type("Below", (type("Between", (kind,), {}),), {"sleep": lambda self, level=1: self.log.append(("below", level))})
        stand_in(monkeypatch, "vllm", {
            "vllm.distributed.weight_transfer.base": {"WeightTransferEngine": WeightTransferEngine},
            "vllm.distributed.parallel_state": {"get_world_group": lambda: SimpleNamespace(world_size=1)},
            "vllm.v1.worker.gpu_worker": {"Worker": kind},
            "vllm.config": {"set_current_vllm_config": current, "get_current_vllm_config": lambda: None},
            "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": object},
        }, [f"weightcast.adapters.vllm.{name}" for name in OURS])
        from weightcast.adapters.vllm import serving, worker

        self.module, self.serving = worker, serving
        monkeypatch.setattr(worker, "EngineShard", lambda *a, **n: Shard(self.log, *a, **n))
        monkeypatch.setattr(worker, "Orders", lambda host, life: Gate(self.log, host, life))
        monkeypatch.setattr(worker, "loaded_version", lambda model: model.loaded)
        monkeypatch.setattr(worker, "loaded_run", lambda model: model.run)
        parallel = SimpleNamespace(data_parallel_size=1, rank=1, world_size=2, pipeline_parallel_size=1, enable_eplb=False)
        self.parallel = parallel
        self.config = SimpleNamespace(speculative_config=None, parallel_config=parallel, instance_id="i")
        self.engine = worker.WeightcastEngine(None, self.config, None, SimpleNamespace(loaded=2, run=4))
        self.worker = kind(self.log)
        self.worker.weight_transfer_engine, self.worker.vllm_config = self.engine, self.config

    def join(self, **settings: Any) -> Any:
        self.worker.init_weight_transfer_engine(settings)
        self.engine.model_runner = None
        return self.engine._shard

    def did(self) -> list[Any]:
        """What was asked since the last question."""
        found = list(self.log)
        self.log.clear()
        return found


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


@pytest.fixture
def joined(rig: Rig) -> Rig:
    rig.join()
    rig.did()
    return rig


def fetches(**info: Any) -> Any:
    return ("shard fetch", info.pop("version", "latest"),
            {"wait": True, "deadline": None, "allow_rollback": False} | info)


def test_an_update_by_calls(joined: Rig) -> None:
    worker = joined.worker
    worker.start_weight_update()
    worker.update_weights({"version": 7, "wait": False, "deadline": 3.0, "allow_rollback": True})
    assert joined.did() == [("shard begin",), fetches(version=7, wait=False, deadline=3.0, allow_rollback=True), ("gate renew",)]
    worker.update_weights({})
    assert joined.did() == [fetches(), ("gate renew",)]
    joined.engine.model_runner = worker.model_runner
    worker.finish_weight_update()
    assert joined.did() == [("shard install",), "reset", ("gate renew",)]
    worker.update_weights({"abandon": True})
    assert joined.did() == [] and joined.engine.abandoned and worker._weight_update_active is False
    worker.start_weight_update()
    assert not joined.engine.abandoned


@pytest.mark.parametrize(("call", "method"), [("update_weights", "fetch"), ("finish_weight_update", "install")])
def test_a_step_that_fails_has_the_gate_look_anew(joined: Rig, call: str, method: str) -> None:
    joined.engine._shard.fails = {method: RuntimeError("no")}
    with pytest.raises(RuntimeError, match="^worker 0: no$"):
        getattr(joined.worker, call)(*([{}] if call == "update_weights" else []))
    assert joined.did()[1:] == [("gate renew",)]
    assert joined.worker._weight_update_active is (method == "install"), "an install is tried again"


def test_what_a_worker_says_to_a_fleet(joined: Rig) -> None:
    worker, engine = joined.worker, joined.engine
    order = {"step": "Fetch"}
    assert worker.weightcast_order(order) == {"answers": [order]}
    assert joined.did() == [("gate order", order, joined.config)]
    assert worker.weightcast_performed({"n": 1}, "why") == {"answers": []}
    worker.weightcast_release()
    assert joined.did() == [("gate performed", {"n": 1}, "why"), ("gate renew",)]
    assert worker.weightcast_state() == vars(EngineState(2, None, None))
    engine.orders = None
    assert worker.weightcast_order(order) is None
    engine.shutdown()
    assert worker.weightcast_state() is None
    del worker.weight_transfer_engine
    assert worker.weightcast_order(order) is None


def test_a_workers_host_side_for_orders(joined: Rig) -> None:
    engine = joined.engine
    assert engine.orders.host is engine and engine.shard() is engine._shard
    life = engine.orders.life
    engine.open_gate(life + 1)
    assert engine.orders.life == life, "it is open"
    engine.before_fetch()
    engine.before_install()
    engine.after_install()
    assert joined.did() == []
    engine._slots = SimpleNamespace(held=lambda: {"a": 1, "b": 2})
    said = ("LoRA adapters of this engine (a, b) were trained on the weights it holds; take them out first, with "
            "slot(name).unload() of the HTTPEngine or LocalEngine")
    for call in (engine.before_fetch, engine.before_install, engine.finish_weight_update, lambda: engine.update_weights({})):
        with pytest.raises(wc.Misuse) as caught:
            call()
        assert str(caught.value) == said
    assert joined.did() == []
    engine.update_weights({"abandon": True})


def test_a_worker_that_has_not_joined(rig: Rig) -> None:
    engine = rig.engine
    said = ('this engine has not joined a job: call init_weight_transfer_engine ({"model": ..., "server": ...}) first')
    for call in (engine.shard, engine.start_weight_update, engine.finish_weight_update, lambda: engine.update_weights({})):
        with pytest.raises(wc.Misuse) as caught:
            call()
        assert str(caught.value) == said
    assert engine.state is None and engine.base_version() == 2, "what it has loaded"
    engine.check_serving()
    engine.spoil("why")
    engine.before_sleep(2)
    engine.after_wake(None)
    engine.shutdown()
    assert rig.did() == []


@pytest.mark.parametrize(("settings", "name"), [({}, None), ({"replica": "r", "datacentre": "d", "spot": True}, "r")])
def test_who_a_worker_is(rig: Rig, monkeypatch: pytest.MonkeyPatch, settings: Any, name: str | None) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host")
    shard = rig.join(**settings)
    assert shard.replica == wc.Replica(name or "host-i", 1, 2, datacentre=settings.get("datacentre", ""), spot="spot" in settings)
    assert shard.held == {"installed": 2, "run": 4}, "as it has loaded"
    rig.parallel.data_parallel_size = 2
    with pytest.raises(RuntimeError, match="this server has 2 data-parallel ranks, of which vLLM lets one answer; start a server for each"):
        rig.join(model="other")


def test_joining_again(rig: Rig) -> None:
    rig.join()
    assert [one[0] for one in rig.did()] == ["shard joins"]
    first, gate = rig.engine._shard, rig.engine.orders
    rig.join()
    assert rig.did() == [("shard answers",)] and rig.engine._shard is first and rig.engine.orders is gate
    first.state, first.version = EngineState(5, None, "half"), VERSION
    first.known = False
    rig.join()
    assert rig.did() == [("shard answers",), ("gate close",), ("shard close",), ("shard joins", "policy")]
    assert rig.engine._shard.held == {"installed": 5, "run": 4, "incomplete": "half"}
    assert rig.engine.orders is not gate
    rig.join(deadline=3.0)
    assert rig.did() == [("gate close",), ("shard close",), ("shard joins", "policy")], "of other settings"
    rig.engine._shard.version = None
    rig.join(job="j")
    assert rig.engine._shard.held == {"incomplete": "half"}, "versions of another job are others"
    with pytest.raises(wc.WeightcastError, match="half"):
        rig.engine.base_version()
    rig.engine._shard.state = EngineState(None, None, None)
    with pytest.raises(wc.Misuse) as caught:
        rig.engine.base_version()
    assert str(caught.value) == "this engine holds weights of another job than the one that it is in: update its base first"
    rig.engine.after_install()
    assert rig.engine.base_version() is None
    rig.join(job="k")
    assert rig.engine.base_version() is None, "it held none of the other"


def test_weights_of_a_job_before_the_last_one_are_foreign_too(rig: Rig) -> None:
    rig.join()
    rig.engine._shard.state, rig.engine._shard.version = EngineState(5, None, None), VERSION
    for job in "jkl":
        rig.join(job=job)
        with pytest.raises(wc.Misuse, match="weights of another job"):
            rig.engine.base_version()
    rig.engine.after_install()
    rig.join(job="m")
    assert rig.engine.base_version() is None


def test_a_join_that_fails_leaves_the_former_job(joined: Rig) -> None:
    joined.parallel.data_parallel_size = 2
    with pytest.raises(RuntimeError):
        joined.join(model="other")
    assert joined.did() == [("gate close",), ("shard close",)]
    assert joined.engine._shard is None and joined.engine.base_version() == 2
    joined.parallel.data_parallel_size = 1
    joined.join()
    assert joined.engine._shard.held == {"installed": 2, "run": 4, "incomplete": None}


@pytest.mark.parametrize(("eplb", "settings", "said"), [
    ({"use_async": True}, {}, "this engine moves experts between its workers in the background (EPLB, use_async), and would move an "
     "expert's former weights over those of an update; start it with --eplb-config.use_async=false"),
    ({"use_async": False}, {"landing": "in_place"}, "this engine moves experts between its workers (enable_eplb), also while others "
     "read the parameters; let bytes land beside them: landing='staged'"),
    ({"use_async": False}, {}, None),
    ({}, {}, None),
])
def test_an_engine_whose_experts_move(rig: Rig, eplb: Any, settings: Any, said: str | None) -> None:
    rig.parallel.enable_eplb, rig.parallel.eplb_config = True, SimpleNamespace(**eplb)
    if said is None:
        assert rig.join(**settings) is not None
    else:
        with pytest.raises(wc.Misuse) as caught:
            rig.engine.init_transfer_engine(Settings(**settings))
        assert str(caught.value) == said and rig.engine._shard is None
        rig.parallel.enable_eplb = False
        rig.engine.init_transfer_engine(Settings(**settings))


def test_a_worker_runs_its_model_only_with_whole_weights_and_its_gates_leave(joined: Rig) -> None:
    worker, engine = joined.worker, joined.engine
    assert worker.execute_model(1, a=2) == "tokens" and joined.did() == [("execute", 1, {"a": 2})]
    engine.orders.serves = False
    with pytest.raises(wc.WeightcastError) as caught:
        worker.execute_model()
    assert str(caught.value) == (
        "this engine stands still for an update of its fleet, and was resumed by somebody else than the driver of that; have a trainer "
        "update it, or call release() of its HTTPEngine"
    )
    engine.orders.serves = True
    engine._shard.state = EngineState(2, None, "half")
    with pytest.raises(wc.WeightcastError, match="^half$"):
        worker.execute_model()
    engine.shutdown()
    with pytest.raises(wc.WeightcastError, match="^half$"):
        worker.execute_model()
    assert joined.did() == [("gate close",), ("shard close",)]
    worker.weight_transfer_engine = None
    assert worker.execute_model() == "tokens", "of another engine than ours"


@pytest.mark.parametrize(("level", "before"), [(0, []), (1, [("gate slept",), ("shard withdraw",)]), (2, [("gate slept",), ("shard discard",)])])
def test_a_worker_gives_its_memory_away_before_it_sleeps(joined: Rig, level: int, before: list[Any]) -> None:
    joined.worker.sleep(level)
    assert joined.did() == [*before, ("sleep", level)]
    joined.worker.sleep()
    assert joined.did() == [("gate slept",), ("shard withdraw",), ("sleep", 1)]


@pytest.mark.parametrize(("tags", "after"), [
    (None, [("shard restore",), ("gate renew",)]), (["weights", "kv_cache"], [("shard restore",), ("gate renew",)]), (["kv_cache"], []),
])
def test_a_worker_has_its_weights_back_once_it_woke(joined: Rig, tags: Any, after: list[Any]) -> None:
    joined.worker.wake_up(tags)
    assert joined.did() == [("wake up", tags), *after, "reset"]
    joined.worker.model_runner = None
    joined.worker.wake_up(tags)
    assert joined.did() == [("wake up", tags), *after]


def test_a_worker_that_was_spoiled(joined: Rig) -> None:
    joined.engine.spoil("why")
    assert joined.did() == [("shard spoil", "why"), ("gate renew",)]


def test_classes_below_vllms_worker_are_wrapped_once(rig: Rig) -> None:
    sleeper = rig.below(rig.log)
    sleeper.weight_transfer_engine = rig.engine
    rig.join()
    rig.did()
    rig.serving.watch_workers()
    sleeper.sleep(2)
    assert rig.did() == [("gate slept",), ("shard discard",), ("below", 2)]
    rig.worker.sleep(2)
    assert rig.did() == [("gate slept",), ("shard discard",), ("sleep", 2)]
    assert type(rig.worker).sleep.__name__ == "sleep"


def test_a_join_tells_the_engine_of_its_draft_and_its_runner(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.serving.secrets, "randbits", lambda bits: 1000 + bits)
    drafts: list[Any] = []
    monkeypatch.setattr(rig.module, "draft_of", lambda *told: drafts.append(told))
    rig.worker.get_draft_model = lambda: "draft"
    rig.worker.init_weight_transfer_engine({"model": "m"})
    assert rig.engine.draft_model == "draft" and rig.engine.model_runner is rig.worker.model_runner
    assert rig.engine.orders.life == 1063
    assert drafts == [(rig.config, "draft", Settings(model="m"))]
    del rig.worker.get_draft_model, rig.worker.model_runner
    rig.worker.init_weight_transfer_engine({"model": "m"})
    assert rig.engine.draft_model is None and rig.engine.model_runner is None


def test_layouts_are_read_with_what_settings_say(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    monkeypatch.setattr(rig.module, "read", lambda *told, **named: read.append((told, named)))
    monkeypatch.setattr(rig.module, "read_with", lambda *told, **named: read.append((told, named)))
    named = {"vllm_config": rig.config, "unused": {"a": "b"}, "unsourced": {}}
    for draft in (None, "draft"):
        monkeypatch.setattr(rig.module, "draft_of", lambda *_, draft=draft: draft)
        rig.join(unused={"a": "b"}, model=str(draft)).read("catalog")
        ((told, known),) = read
        assert told == (*([draft] if draft else []), rig.engine.model, "catalog")
        assert known.pop("rename") is not None and known == named
        read.clear()


def test_adapters_have_slots_of_their_own(joined: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, made = joined.engine, []
    monkeypatch.setattr(joined.module, "Slots", lambda *told: made.append(told) or Noting(joined.log, "slots"))
    joined.worker.model_runner.lora_manager = "manager"
    slots = engine.slots(joined.worker)
    assert engine.slots(joined.worker) is slots and made == [("manager", engine.base_version)]
    engine.join_adapter(joined.worker, Settings(model="a", replica="r"))
    assert joined.did() == [("slots join", Settings(model="a", replica="r"), wc.Replica("r", 1, 2))]
    joined.parallel.pipeline_parallel_size = 2
    with pytest.raises(wc.Misuse) as caught:
        engine.join_adapter(joined.worker, Settings())
    assert str(caught.value) == (
        "this engine has 2 pipeline stages, and weightcast does not cut adapters to stages yet; start it without --pipeline-parallel-size"
    )
    engine.shutdown()
    assert joined.did() == [("slots close",), ("gate close",), ("shard close",)]
    del joined.worker.model_runner.lora_manager
    engine._slots = None
    with pytest.raises(wc.Misuse, match="^this engine takes no LoRA adapters; start it with --enable-lora, "):
        engine.slots(joined.worker)


STEPS = {
    "begin": ({}, ("shard begin",)),
    "fetch": ({"version": 3, "wait": False}, ("shard fetch", {"version": 3, "wait": False})),
    "drop": ({}, ("slots drop", "a")),
}


def slots(rig: Rig) -> Any:
    made = Noting(rig.log, "slots", held=dict, shard=lambda name: rig.shards[name])
    rig.shards = {"a": Shard([], Settings(), None, None)}
    rig.shards["a"]._log = rig.log
    rig.engine._slots = made
    return made


@pytest.mark.parametrize("step", STEPS)
def test_what_a_trainer_asks_about_an_adapter(joined: Rig, step: str) -> None:
    made, (info, call) = slots(joined), STEPS[step]
    assert joined.worker.weightcast_adapter(step, "a", info) is None
    assert joined.did() == [call]
    (made if step == "drop" else joined.shards["a"]).fails = {step: RuntimeError("no")}
    with pytest.raises(RuntimeError, match="^worker 0: no$"):
        joined.worker.weightcast_adapter(step, "a", info)


def test_what_a_worker_says_of_an_adapter(joined: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    slots(joined)
    assert joined.worker.weightcast_adapter("state", "a", {}) == vars(EngineState(None, None, None))
    joins = []
    monkeypatch.setattr(joined.engine, "join_adapter", lambda *told: joins.append(told))
    joined.worker.weightcast_adapter("join", "a", {"model": "a"})
    assert joins == [(joined.worker, Settings(model="a"))]


def request(path: str) -> Any:
    return SimpleNamespace(lora_path=path, lora_int_id=9)


OF_OURS = "weightcast://a/run/3"


def test_an_adapter_of_ours_is_put_and_noted(joined: Rig) -> None:
    made, asked = slots(joined), request(OF_OURS)
    made.put = lambda path, request: joined.log.append(("put", str(path), request)) or (lambda: joined.log.append("take back"))
    made.installed = lambda path: joined.log.append(("installed", str(path)))
    assert joined.worker.add_lora(asked) is True
    assert joined.did() == [("put", OF_OURS, asked), ("installed", OF_OURS)]
    other = request("/a/directory")
    assert joined.worker.add_lora(other) is True and joined.did() == [("add", other)]
    joined.worker.parallel_config.data_parallel_size = 2
    assert joined.worker.add_lora(asked) is True and joined.did() == [("add", asked)]


def test_an_adapter_that_another_worker_does_not_take_is_taken_back(joined: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from weightcast.adapters.vllm import agreed

    made, asked, said = slots(joined), request(OF_OURS), []
    made.put = lambda path, request: lambda: joined.log.append("take back")

    def exchanged(own: Any) -> Any:
        said.append(json.loads(json.dumps(own)))
        return [own, {"error": "no room"}] if len(said) == 1 else [own, {"error": None}]

    monkeypatch.setattr(agreed, "exchanged", exchanged)
    assert joined.worker.add_lora(asked) is False, "the last worker raises"
    assert joined.did() == ["take back"] and said == [{"error": None}] * 2
    said.clear()
    joined.worker.rank = 1
    with pytest.raises(agreed.StepFailed, match="^worker 1: no room$"):
        joined.worker.add_lora(asked)
    monkeypatch.setattr(agreed, "exchanged", lambda own: [own])
    joined.worker.rank = 0
    made.installed = lambda path: 1 / 0
    with pytest.raises(agreed.StepFailed, match="^worker 0: division by zero$"):
        joined.worker.add_lora(asked)


def test_turns_of_a_worker(joined: Rig) -> None:
    worker, turn = joined.worker, joined.engine.turn
    worker.weightcast_turn("take", "me", 100.0)
    with pytest.raises(RuntimeError, match=r"^worker 0: another update of this engine is under way \(me\); try again$"):
        worker.weightcast_turn("take", "you", 100.0)
    assert turn._holder == "me", "what was not taken is not given back"
    worker.weightcast_turn("give_back", "you")
    assert turn._holder == "me"
    worker.weightcast_turn("give_back", "me")
    worker.weightcast_turn("take", "you")
    worker.weightcast_turn("take", "me", 100.0)


def test_a_worker_with_the_extension(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from weightcast.adapters.vllm.extension import WorkerExtension

    kind = type("Extended", (type(rig.worker), WorkerExtension), {})
    worker = kind(rig.log)
    worker.vllm_config, worker.device = rig.config, "cpu"
    worker.model_runner.model = SimpleNamespace(loaded=2, run=4)
    assert worker.weightcast_order({}) is None, "it has no engine yet"
    worker.weightcast_join({"model": "m"})
    engine = worker.weight_transfer_engine
    assert engine.model is worker.model_runner.model and engine.vllm_config is rig.config
    assert engine._shard.settings == Settings(model="m") and rig.did() == [("shard joins", "m")]
    worker.weightcast_join({"model": "m"})
    assert worker.weight_transfer_engine is engine and rig.did() == [("shard answers",)]
    assert worker.weightcast_order({"step": "Fetch"}) == {"answers": [{"step": "Fetch"}]}
    rig.did()
    worker.weightcast_begin()
    worker.weightcast_fetch({"version": 3})
    worker.weightcast_install()
    assert rig.did() == [("shard begin",), fetches(version=3), ("gate renew",), ("shard install",), "reset", ("gate renew",)]
    engine._shard.fails = {"begin": RuntimeError("a"), "fetch": RuntimeError("b"), "install": RuntimeError("c")}
    for call, said in ((worker.weightcast_begin, "a"), (lambda: worker.weightcast_fetch({}), "b"), (worker.weightcast_install, "c")):
        with pytest.raises(RuntimeError, match=f"^worker 0: {said}$"):
            call()
        assert worker._weight_update_active is (said == "c")
    worker.weight_transfer_engine = object()
    with pytest.raises(wc.Misuse) as caught:
        worker.weightcast_join({})
    assert str(caught.value) == "this engine was started with another weight-transfer backend (object); start it without one"


def test_plugins_are_registered_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    class Registry:
        def __init__(self) -> None:
            self._registry: dict[str, Any] = {}

        def register_engine(self, backend: str, module: str, name: str) -> None:
            assert backend not in self._registry
            self._registry[backend] = (module, name)

    engines, trainers, loaders = Registry(), Registry(), {}
    factory = {"WeightTransferEngineFactory": engines, "WeightTransferTrainerFactory": trainers}
    stand_in(monkeypatch, "vllm", {
        "vllm.distributed.weight_transfer.factory": factory,
        "vllm.model_executor.model_loader": {
            "_LOAD_FORMAT_TO_MODEL_LOADER": loaders, "register_model_loader": lambda name: lambda kind: loaders.update({name: kind}),
        },
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": object},
        "vllm.config": {"get_current_vllm_config": lambda: None},
    }, ["weightcast.adapters.vllm.loader"])
    from weightcast.adapters.vllm.plugin import register

    for _ in range(2):
        register()
    assert engines._registry == {"weightcast": ("weightcast.adapters.vllm.worker", "WeightcastEngine")}
    assert trainers._registry == {"weightcast": ("weightcast.adapters.vllm.trainer", "WeightcastTrainer")}
    assert [(name, kind.__name__) for name, kind in loaders.items()] == [("weightcast", "WeightcastLoader")]
    monkeypatch.delattr(sys.modules["vllm.distributed.weight_transfer.factory"], "WeightTransferTrainerFactory")
    register()
