"""LoRA adapters in the slots of vLLM's own LoRA manager, over real modules, without an engine around them."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import LoRAConfig, set_current_vllm_config
from vllm.lora.request import LoRARequest
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager

import weightcast as wc
from weightcast.adapters.engine import Settings
from weightcast.adapters.engine.adapter import Adapter, Carried
from weightcast.adapters.engine.sources import source_of
from weightcast.adapters.vllm import agreed, serving
from weightcast.adapters.vllm.lora import slots
from weightcast.adapters.vllm.lora.build import lora_model
from weightcast.adapters.vllm.lora.paths import AdapterPath
from weightcast.adapters.vllm.lora.slots import Slots
from weightcast.adapters.vllm.lora.steps import adapter_step, add_lora
from weightcast.adapters.vllm.worker import WeightcastEngine

from .engine import build_with_config
from .live.adapters import RANK, become, peft_model, saved
from .live.weights import Model


def manager_of(model: Model) -> Any:
    """A worker's LoRA manager, for two adapters at once."""
    built, whole = build_with_config(model.config, tp=1, rank=0)
    whole.lora_config = LoRAConfig(max_lora_rank=RANK, max_loras=2, max_cpu_loras=2)
    whole.lora_config.verify_with_model_config(whole.model_config)
    with set_current_vllm_config(whole):
        manager = LRUCacheWorkerLoRAManager(whole, torch.device("cpu"), built.embedding_modules)
        manager.create_lora_manager(built, whole)
    return manager


def in_memory(manager: Any, number: int) -> dict[str, list[torch.Tensor]]:
    """What the kernels would read of an adapter, module by module; nothing for one that is not there."""
    adapters = manager._adapter_manager
    if number not in adapters.lora_index_to_id:
        return {}
    at = adapters.lora_index_to_id.index(number)
    stacked = {name: (*m.lora_a_stacked, *m.lora_b_stacked) for name, m in adapters.modules.items()}
    return {name: [tensor[at].clone() for tensor in each] for name, each in stacked.items()}


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(a, b) for name in one for a, b in zip(one[name], other[name], strict=True)
    )


class Sender:
    """A trainer of one adapter, and the slot that follows it."""

    def __init__(
        self, model: Model, server: str, slots: Slots, name: str, number: int, dtype: torch.dtype
    ) -> None:
        self.model, self.slots, self.name, self.number = peft_model(model).to(dtype), slots, name, number
        self.run = "run"
        self.adapter = Adapter(self.model)
        self.source = source_of(self.adapter, 0)
        self.handle = wc.open(name, wc.Replica("trainer"), role="trainer", epoch="new", server=server)
        self.handle.register(self.source.layout())
        slots.join(Settings(model=name, server=server, replica="engine"), wc.Replica("engine"))

    def fetch(self, version: int, content: int | None = None) -> None:
        become(self.model, version if content is None else content)
        self.source.refresh()
        self.handle.publish(version)
        try:
            self.slots.shard(self.name).begin()
            self.slots.shard(self.name).fetch(version)
        finally:
            self.handle.unpublish()

    def request(self, version: int) -> LoRARequest:
        path = AdapterPath(self.name, self.run, version)
        return LoRARequest(self.name, self.number, str(path), load_inplace=True)

    def install(self, version: int) -> None:
        self.slots.put(AdapterPath(self.name, self.run, version), self.request(version))
        self.slots.shard(self.name).install()

    def send(self, version: int) -> None:
        self.fetch(version)
        self.install(version)


class Rig:
    """A manager that follows the trainers of adapters, and one that loads them from directories."""

    def __init__(self, directory: Path, server: str) -> None:
        self.model, self.server, self.directory = Model(directory / "model"), server, directory
        self.base: int | None = None
        self.manager, self.fresh = manager_of(self.model), manager_of(self.model)
        self.slots = Slots(self.manager, lambda: self.base)
        self.held = peft_model(self.model)

    def sender(self, name: str, number: int, dtype: torch.dtype = torch.float32) -> Sender:
        return Sender(self.model, self.server, self.slots, name, number, dtype)

    def loaded(self, version: int) -> dict:
        """What vLLM loads from the directory that peft writes."""
        path = saved(self.held, version, self.directory / f"adapter-{version}")
        self.fresh.add_adapter(LoRARequest(f"fresh-{version}", version, str(path)))
        return in_memory(self.fresh, version)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with wc.serve() as server:
        made = Rig(tmp_path, server.address)
        yield made
        made.slots.close()


def test_slots_hold_what_vllm_loads_from_directories(rig: Rig) -> None:
    one, two = rig.sender("one", 11), rig.sender("two", 12)
    one.send(1)
    two.send(2)
    assert same(in_memory(rig.manager, 11), rig.loaded(1))
    assert same(in_memory(rig.manager, 12), rig.loaded(2))
    one.send(3)
    assert same(in_memory(rig.manager, 11), rig.loaded(3))
    assert same(in_memory(rig.manager, 12), rig.loaded(2))
    assert not same(rig.loaded(2), rig.loaded(3))

    # A third one puts out the one used least recently, which comes back from memory when it is asked for,
    # the installed version and not the one that has been fetched meanwhile.
    third = rig.sender("three", 13)
    third.send(1)
    assert not in_memory(rig.manager, 12)
    two.fetch(4)
    rig.manager.add_adapter(two.request(2))
    assert same(in_memory(rig.manager, 12), rig.loaded(2))

    # A request that began with a former version goes on with the one that there is.
    two.install(4)
    rig.manager.add_adapter(two.request(2))
    assert same(in_memory(rig.manager, 12), rig.loaded(4))


def test_the_same_number_of_another_run_is_another_version(rig: Rig) -> None:
    one = rig.sender("one", 11)
    one.send(1)
    one.handle.close()
    later = rig.sender("one", 11)
    later.run = "later"
    later.fetch(1, content=5)
    later.install(1)
    assert same(in_memory(rig.manager, 11), rig.loaded(5))


def test_an_adapter_in_the_engine_s_own_type_comes_back_unchanged(rig: Rig) -> None:
    one = rig.sender("one", 11, torch.bfloat16)
    one.send(1)
    first = in_memory(rig.manager, 11)
    for _ in range(2):
        # vLLM scales what it has loaded in place.
        rig.manager.remove_adapter(11)
        rig.manager.add_adapter(one.request(1))
        assert same(in_memory(rig.manager, 11), first)


def test_each_step_of_a_request_does_not_load_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    one = rig.sender("one", 11)
    one.send(1)
    monkeypatch.setattr(rig.manager, "_load_adapter", lambda request: pytest.fail("loaded again"))
    assert one.request(1).load_inplace, "as the server hands it to the workers"
    rig.manager.add_adapter(one.request(1))


def break_one(manager: Any, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A module in the middle does not take its part, so many times."""
    modules = list(manager._adapter_manager.modules.values())
    broken = modules[len(modules) // 2]
    take, left = broken.set_lora, [None] * times

    def taking(*arguments: Any) -> None:
        if left:
            left.pop()
            raise RuntimeError("no room")
        take(*arguments)

    monkeypatch.setattr(broken, "set_lora", taking)


def test_what_fails_midway_is_the_old_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    one = rig.sender("one", 11)
    one.fetch(1)
    break_one(rig.manager, monkeypatch, 1)
    with pytest.raises(RuntimeError, match="no room"):
        one.install(1)
    assert not in_memory(rig.manager, 11), "there was none"
    assert not rig.slots.held()
    one.install(1)

    one.fetch(2)
    break_one(rig.manager, monkeypatch, 1)
    with pytest.raises(RuntimeError, match="no room"):
        one.install(2)
    assert same(in_memory(rig.manager, 11), rig.loaded(1))
    # What has been fetched is still there.
    one.install(2)
    assert same(in_memory(rig.manager, 11), rig.loaded(2))

    # Another worker failed: this one takes it back.
    one.fetch(3)
    rig.slots.put(AdapterPath("one", "run", 3), one.request(3))()
    assert same(in_memory(rig.manager, 11), rig.loaded(2))


def worker_of(rig: Rig, rank: int = 0) -> Any:
    """One of two workers."""
    engine = SimpleNamespace(slots=lambda worker: rig.slots)
    parallel = SimpleNamespace(data_parallel_size=1)
    return SimpleNamespace(weight_transfer_engine=engine, parallel_config=parallel, rank=rank)


def test_every_error_of_a_worker_is_told_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM reads answers up to the first error: what is left would be the answers to later calls."""
    monkeypatch.setattr(agreed, "exchanged", lambda own: [own, {"error": None}])
    first, request = worker_of(rig), LoRARequest("one", 11, "weightcast://one")
    assert add_lora(first, pytest.fail, request) is False
    request.lora_path = "/a/directory"
    assert add_lora(first, lambda request: 1 / 0, request) is False
    assert add_lora(first, lambda request: True, request) is True
    for step, info in (("state", {}), ("join", {"unknown": 1}), ("no step", {})):
        assert adapter_step(first, step, "one", info) is None
    with pytest.raises(agreed.StepFailed, match="worker 0: this engine has not joined the job of the adapter"):
        adapter_step(worker_of(rig, 1), "state", "one", {})


def test_what_cannot_be_taken_back_is_not_served(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    one = rig.sender("one", 11)
    one.send(1)
    one.fetch(2)
    monkeypatch.setattr(agreed, "exchanged", lambda own: [{"error": "no room"}, own])
    with monkeypatch.context() as broken:
        break_one(rig.manager, broken, 2)
        with pytest.raises(agreed.StepFailed, match="no room; .*one was not taken back .no room.; send it again"):
            add_lora(worker_of(rig, 1), pytest.fail, one.request(2))
    for version in (1, 2):
        with pytest.raises(wc.WeightcastError, match="was not taken back"):
            rig.manager.add_adapter(one.request(version))
    shard = rig.slots.shard("one")
    assert "was not taken back" in shard.state.incomplete, "its trainer leaves the engine paused"
    monkeypatch.setattr(agreed, "exchanged", lambda own: [own, own])
    assert add_lora(worker_of(rig, 1), pytest.fail, one.request(2)) is True
    assert shard.state.incomplete is None
    assert same(in_memory(rig.manager, 11), rig.loaded(2))


def test_an_adapter_is_built_before_the_exchange(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    one = rig.sender("one", 11)
    one.fetch(1)
    with monkeypatch.context() as exchange:
        exchange.setattr(slots, "lora_model", lambda *_: pytest.fail("built again"))
        one.install(1)
    one.fetch(2)
    rig.manager.remove_adapter(11)
    rig.manager.add_adapter(one.request(1))
    assert same(in_memory(rig.manager, 11), rig.loaded(1))
    one.install(2)
    assert same(in_memory(rig.manager, 11), rig.loaded(2))


def test_a_worker_goes_by_what_the_others_say(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_of(rig)
    one = rig.sender("one", 11)
    one.send(1)
    one.fetch(2)
    monkeypatch.setattr(agreed, "exchanged", lambda own: [own, {"error": "no room"}])
    assert add_lora(worker, pytest.fail, one.request(2)) is False
    state = one.slots.shard("one").state
    assert (state.installed, state.fetched, state.incomplete) == (1, 2, None)
    assert same(in_memory(rig.manager, 11), rig.loaded(1))
    # The last worker says so.
    worker.rank = 1
    with pytest.raises(agreed.StepFailed, match="worker 1: no room"):
        add_lora(worker, pytest.fail, one.request(2))
    assert same(in_memory(rig.manager, 11), rig.loaded(1))
    monkeypatch.setattr(agreed, "exchanged", lambda own: [own, own])
    assert add_lora(worker, pytest.fail, one.request(2)) is True
    assert one.slots.shard("one").state.installed == 2
    assert same(in_memory(rig.manager, 11), rig.loaded(2))


def test_an_adapter_of_another_base_is_refused(rig: Rig) -> None:
    one = rig.sender("one", 11)
    one.send(1)
    one.adapter.base = 3
    with pytest.raises(
        wc.Misuse,
        match="one was trained on version 3 of its base, and this engine holds the weights that engines load",
    ):
        one.fetch(2)
    assert one.slots.shard("one").state.fetched is None
    rig.base = 3
    one.send(3)
    assert rig.slots.held() == {"one": 3}
    # Between the fetch and the install the base has gone on.
    one.fetch(4)
    rig.base = 4
    with pytest.raises(wc.Misuse, match="this engine holds version 4 of its base"):
        one.install(4)
    assert same(in_memory(rig.manager, 11), rig.loaded(3))
    # What vLLM has put out does not come back on another base.
    rig.manager.remove_adapter(11)
    with pytest.raises(wc.Misuse, match="this engine holds version 4 of its base"):
        rig.manager.add_adapter(one.request(3))


def test_what_the_engine_has_no_place_for_is_refused(rig: Rig) -> None:
    one = rig.sender("one", 11)
    rig.manager.lora_config.max_lora_rank = 1
    with pytest.raises(ValueError, match="LoRA rank 8 is greater than max_lora_rank 1"):
        one.fetch(1)
    rig.manager.lora_config.max_lora_rank = RANK
    rig.manager._adapter_manager.modules.popitem()
    with pytest.raises(wc.LayoutMismatch, match="no place for 1 of the adapter's"):
        one.fetch(2)


def test_adapters_of_experts_and_of_stages_are_refused(rig: Rig) -> None:
    with pytest.raises(wc.LayoutMismatch, match="experts.0.up_proj.lora_A.weight belongs to experts"):
        lora_model(rig.manager, 1, Carried(None, {}, {"mlp.experts.0.up_proj.lora_A.weight": torch.zeros(1)}))
    parallel = SimpleNamespace(pipeline_parallel_size=2)
    engine = SimpleNamespace(vllm_config=SimpleNamespace(parallel_config=parallel))
    with pytest.raises(wc.Misuse, match="has 2 pipeline stages"):
        WeightcastEngine.join_adapter(engine, None, Settings())


def test_a_dropped_adapter_is_gone(rig: Rig) -> None:
    one = rig.sender("one", 11)
    one.send(1)
    rig.slots.drop("one")
    assert not in_memory(rig.manager, 11) and not rig.slots.held()
    assert one.slots.shard("one").state.installed is None
    one.send(2)
    assert same(in_memory(rig.manager, 11), rig.loaded(2))
    rig.slots.drop("another")


def test_an_adapter_comes_back_after_a_sleep(rig: Rig) -> None:
    """Whose memory has gone: vLLM's manager believes that the adapter is still there."""
    one = rig.sender("one", 11)
    one.send(1)

    def sleep_and_wake(tags: list[str] | None) -> None:
        for module in rig.manager._adapter_manager.modules.values():
            for tensor in (*module.lora_a_stacked, *module.lora_b_stacked):
                tensor.zero_()

    worker = worker_of(rig)
    worker.weight_transfer_engine.after_wake = lambda tags: None
    worker.model_runner = SimpleNamespace(reset_lora_state=rig.manager.remove_all_adapters)
    serving._wake_up(worker, sleep_and_wake)
    rig.manager.add_adapter(one.request(1))
    assert same(in_memory(rig.manager, 11), rig.loaded(1))


def test_a_request_that_comes_too_late_ends_no_engine(rig: Rig) -> None:
    """It was accepted before the adapter was taken out: the base alone answers, until another version comes."""
    one = rig.sender("one", 11)
    one.send(1)
    rig.slots.drop("one")
    for _ in range(2):
        rig.manager.add_adapter(one.request(1))
        assert not any(tensor.any() for each in in_memory(rig.manager, 11).values() for tensor in each)
    assert not rig.slots.held()
    one.send(2)
    rig.manager.add_adapter(one.request(1))
    assert same(in_memory(rig.manager, 11), rig.loaded(2))
