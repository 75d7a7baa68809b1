"""Honest mistakes with modules of torch, each as a user's program: all right, or told."""

import logging
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.adapters import sglang  # noqa: E402

from . import test_adapters  # noqa: E402
from .conftest import SOON, Group  # noqa: E402
from .programs import sharded_mistakes  # noqa: E402
from .test_torch import bits  # noqa: E402


class Model(nn.Module):
    """Linear layers, with statistics that training keeps in buffers."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.up = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.down = nn.Linear(5, 6)
        self.register_buffer("scratch", torch.randn(6), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(inputs)))


def trainer(group, model: nn.Module, **options) -> wc.Handle:
    return group("trainer", [wct.layout(model, **options)], role="trainer")[0]


def receive(group, handle: wc.Handle, model: nn.Module, version: int) -> None:
    """What a rollout gets is what the trainer's module holds now."""
    handle.publish(version, deadline=SOON, seal=True)
    copy = Model(seed=99)
    group(f"rollout-{version}", [wct.layout(copy)])[0].replicate(version, deadline=SOON)
    for (name, mine), theirs in zip(
        model.state_dict().items(), copy.state_dict().values(), strict=True
    ):
        assert bits(mine) == bits(theirs), name


def assign(model: nn.Module) -> None:
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)


def swap_data(model: nn.Module) -> None:
    model.down.weight.data = model.down.weight.data + 1


def new_parameter(model: nn.Module) -> None:
    model.down.weight = nn.Parameter(model.down.weight.detach() + 1)


def new_layer(model: nn.Module) -> None:
    model.down = nn.Linear(5, 6)


def other_type_and_back(model: nn.Module) -> None:
    model.down.double().float()


def new_buffer(model: nn.Module) -> None:
    model.norm.running_mean = model.norm.running_mean + 1


STALE = {
    "load_state_dict(assign=True)": (assign, "up.weight, up.bias, "),
    "an optimizer that swaps .data": (swap_data, "down.weight: "),
    "a new parameter": (new_parameter, "down.weight: "),
    "another type and back": (other_type_and_back, "down.weight, down.bias: "),
    "a new buffer": (new_buffer, "norm.running_mean: "),
}


@pytest.mark.parametrize(("replace", "said"), STALE.values(), ids=STALE)
def test_storage_replaced_under_a_registration(group, replace, said):
    model = Model()
    handle = trainer(group, model)
    receive(group, handle, model, 1)
    handle.unpublish(deadline=SOON)
    replace(model)
    with pytest.raises(wc.Misuse, match="storage has been replaced") as told:
        handle.publish(2, deadline=SOON)
    assert said in str(told.value)
    with pytest.raises(wc.Misuse, match="storage has been replaced"), handle.published(2):
        pass
    # As the message says.
    handle.unregister(deadline=SOON)
    handle.register(wct.layout(model), deadline=SOON)
    receive(group, handle, model, 2)


def test_training_in_place_is_not_told_off(group):
    model = Model()
    handle = trainer(group, model)
    for step, make in enumerate([torch.optim.SGD, torch.optim.AdamW]):
        optimizer = make(model.parameters(), lr=0.1)
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
        receive(group, handle, model, step)
        handle.unpublish(deadline=SOON)


def test_storage_replaced_before_it_is_registered(group):
    model = Model()
    layout = wct.layout(model)
    assign(model)
    handle = group("trainer", [layout], role="trainer", register=False)[0]
    with pytest.raises(wc.Misuse, match="up.weight"):
        handle.register(layout, deadline=SOON)


def test_storage_replaced_under_a_rollout(group):
    """The weights would go where the engine does not look any more."""
    model, engine = Model(), Model(seed=1)
    trainer(group, model).publish(1, deadline=SOON, seal=True)
    rollout = group("rollout", [wct.layout(engine)])[0]
    assign(engine)
    for call in (lambda: rollout.update(deadline=SOON), lambda: rollout.replicate(1)):
        with pytest.raises(wc.Misuse, match="up.weight"):
            call()
    assert rollout.version is None
    rollout.unregister(deadline=SOON)
    rollout.register(wct.layout(engine), deadline=SOON)
    assert rollout.update(deadline=SOON).changed
    assert torch.equal(engine.up.weight, model.up.weight)


def test_storage_replaced_under_a_layout_made_by_hand(group):
    linear = nn.Linear(4, 4)
    layout = wc.Layout().add(linear.weight, "w").add(linear.bias.detach(), "b")
    handle = group("trainer", [layout], role="trainer")[0]
    handle.publish(1, deadline=SOON, seal=True)
    handle.unpublish(deadline=SOON)
    linear.weight.data = linear.weight.data.clone()
    with pytest.raises(wc.Misuse, match="w: the storage"):
        handle.publish(2, deadline=SOON)


@pytest.mark.parametrize("name", ["qkv", "gate"])
def test_storage_replaced_under_a_live_engine(group, name):
    """In place or through a staged tensor: what the adapter knows is not the engine's any more."""
    held = test_adapters.values(0)
    layout = wc.Layout()
    for key, tensor in held.items():
        layout.add(tensor, key)
    handle = group("trainer", [layout], role="trainer")[0]
    handle.publish(1, deadline=SOON, seal=True)
    engine = test_adapters.Engine(0, 1)

    def read():
        return sglang.read(engine, test_adapters.published(), unsourced={"scale": "the engine's"})

    rollout = group("rollout", [read().layout(stage=True)])[0]
    setattr(engine, name, nn.Parameter(getattr(engine, name).clone(), requires_grad=False))
    with pytest.raises(wc.Misuse, match=f"{name}: the storage has been replaced"):
        rollout.update(deadline=SOON)
    rollout.unregister(deadline=SOON)
    live = read()
    rollout.register(live.layout(stage=True), deadline=SOON)
    assert rollout.update(deadline=SOON).changed
    live.finish()
    assert torch.equal(engine.gate, held["gate"].float())


def test_storage_replaced_on_one_shard_is_told_to_all(group):
    tensors = [nn.Parameter(torch.ones(4)) for _ in range(2)]
    layouts = [
        wc.Layout().add(t, wc.part("w", shape=[8], dim=0, index=i, of=2))
        for i, t in enumerate(tensors)
    ]
    pair: Group = group("trainer", layouts, role="trainer")
    tensors[1].data = torch.zeros(4)
    errors = pair.each(lambda h: h.publish(1, deadline=SOON))
    assert isinstance(errors[1], wc.Misuse) and isinstance(errors[0], wc.LayoutMismatch), errors
    assert "shard 1: " in str(errors[0]) and "storage has been replaced" in str(errors[0])


def test_a_module_that_is_gone_is_noticed(group, caplog):
    """`model = load(...)` in the middle of a run: the registered one is trained no more."""
    model = Model()
    handle = trainer(group, model)
    del model
    for version in range(3):
        with caplog.at_level(logging.WARNING, "weightcast"):
            handle.publish(version, deadline=SOON, seal=True)
        told = [r for r in caplog.records if "is gone" in r.message]
        assert len(told) == (version > 0), "once, from the second version on"
        handle.unpublish(deadline=SOON)


def test_statistics_in_buffers_are_published(group):
    model = Model()
    model(torch.randn(64, 6))
    handle = trainer(group, model)
    receive(group, handle, model, 1)
    assert model.norm.num_batches_tracked == 1


def test_buffers_are_left_out_where_that_is_said(group):
    one, two = Model(), Model(seed=1)
    trainer(group, one, buffers=False).publish(1, deadline=SOON, seal=True)
    before = two.norm.running_mean.clone().fill_(7)
    two.norm.running_mean.copy_(before)
    group("rollout", [wct.layout(two, buffers=False)])[0].replicate(1, deadline=SOON)
    assert torch.equal(two.norm.running_mean, before) and torch.equal(one.up.bias, two.up.bias)


def test_what_a_transformers_checkpoint_has_is_published(tmp_path):
    """By `save_pretrained`: persistent buffers, of tied weights one, and nothing else."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    experts = {
        "moe_intermediate_size": 16, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "q_lora_rank": 8,
        "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4,
    }  # fmt: skip
    for config in [
        transformers.LlamaConfig(**small, **heads, tie_word_embeddings=True),
        transformers.DeepseekV3Config(**small, **heads, **experts),
        transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64),
    ]:
        model = transformers.AutoModelForCausalLM.from_config(config)
        path = tmp_path / config.model_type
        model.save_pretrained(path)
        layout = wct.layout(model, expect=path)
        assert len(layout) > 0
        with pytest.raises(wc.LayoutMismatch) if config.model_type == "deepseek_v3" else nullcontext():
            wct.layout(model, expect=path, buffers=False)


def test_one_memory_of_two_parameters_is_tied(group):
    model, copy = (nn.ModuleDict({n: nn.Linear(4, 4, bias=False) for n in "ab"}) for _ in range(2))
    for module in (model, copy):
        module["b"].weight = nn.Parameter(module["a"].weight.detach())
    trainer(group, model).publish(1, deadline=SOON, seal=True)
    group("rollout", [wct.layout(copy)])[0].replicate(1, deadline=SOON)
    assert torch.equal(copy["b"].weight, model["a"].weight)


def marked(module: nn.Module, name: str, **marks) -> nn.Module:
    for mark, value in marks.items():
        setattr(module.get_parameter(name), mark, value)
    return module


class Ranks:
    """A process group of this size."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self) -> int:
        return self._size


def test_zero3_is_refused():
    """As `deepspeed.zero.Init` leaves it: no bytes, and the shape elsewhere."""
    model = marked(Model(), "up.weight", ds_id=3, ds_shape=torch.Size([5, 6]), ds_tensor=None)
    model.up.weight.data = torch.empty(0)
    with pytest.raises(wc.Misuse, match="up.weight is partitioned by DeepSpeed ZeRO-3"):
        wct.layout(model)


def test_megatron_is_refused_where_ranks_share_it(group, monkeypatch):
    marks = {"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 1}
    whole = {"tensor_model_parallel": False, "partition_dim": -1, "partition_stride": 1}
    model = marked(Model(), "up.weight", **marks)
    with pytest.raises(wc.Misuse, match="up.weight belongs to Megatron"):
        wct.layout(model)
    model.up.tp_group = Ranks(2)
    with pytest.raises(wc.Misuse, match="up.weight belongs to Megatron"):
        wct.layout(model)
    model.up.tp_group = Ranks(1)
    model = marked(model, "down.weight", **whole)
    receive(group, trainer(group, model), model, 1)
    # On a pipeline stage layers are counted from zero again.
    state = type(sys)("megatron.core.parallel_state")
    state.get_pipeline_model_parallel_world_size = lambda: 2
    state.get_tensor_model_parallel_world_size = lambda: 1
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    with pytest.raises(wc.Misuse, match="up.weight belongs to Megatron"):
        wct.layout(model)
    state.get_pipeline_model_parallel_world_size = lambda: 1
    del model.up.tp_group
    assert len(wct.layout(model)) == len(model.state_dict())
    state.get_tensor_model_parallel_world_size = lambda: 2
    with pytest.raises(wc.Misuse, match="up.weight belongs to Megatron"):
        wct.layout(model)


class Params4bit(nn.Parameter):
    """As bitsandbytes names it."""


def test_bitsandbytes_is_refused():
    model = Model()
    model.up.weight = Params4bit(torch.zeros(15, 1, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(wc.Misuse, match="up.weight is packed by bitsandbytes"):
        wct.layout(model)


def test_what_is_left_out_need_not_be_describable():
    model = Model()
    whole = len(wct.layout(model))
    model.up.weight = Params4bit(torch.zeros(15, 1, dtype=torch.uint8), requires_grad=False)
    listed = wct.layout(model, rename=lambda name: None if name == "up.weight" else name)
    assert len(listed) == whole - 1


def test_dtypes_that_no_checkpoint_has_are_named():
    model = Model()
    whole = len(wct.layout(model, buffers=False))
    model.register_buffer("freqs_cis", torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(wc.Misuse, match="freqs_cis has dtype torch.complex64.*buffers=False"):
        wct.layout(model)
    assert len(wct.layout(model, buffers=False)) == whole


class Codes(torch.Tensor):
    """A tensor that is made of others when it is asked, as torchao's are."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.bfloat16)

    def __init__(self, codes: torch.Tensor) -> None:
        self.codes = codes

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes)
        raise NotImplementedError(func)


def test_tensors_made_of_others_are_named():
    model = Model()
    model.up.weight = nn.Parameter(Codes(torch.zeros(5, 6, dtype=torch.int8)), requires_grad=False)
    with pytest.raises(wc.Misuse, match=r"up\.weight: a Codes, .*quantise"):
        wct.layout(model)
    with pytest.raises(wc.Misuse, match=r"w: a Codes"):
        wc.Layout().add(Codes(torch.zeros(2, 2, dtype=torch.int8)), "w")


def test_meta_tensors_are_named():
    with torch.device("meta"):
        model = nn.Linear(3, 3)
    with pytest.raises(wc.Misuse, match="weight: a meta tensor.*to_empty"):
        wct.layout(model)


@pytest.mark.parametrize("world", [1, 2])
def test_sharded_modules_are_right_or_refused(group, server, tmp_path, world):
    """FSDP1 in all its forms is refused; FSDP2 is read between steps, and its storage watched."""
    command = [sys.executable, "-m", f"{__package__}.programs.sharded_mistakes"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), server.address, str(tmp_path)],
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        for version in range(1, 1 + sharded_mistakes.VERSIONS):
            copy = sharded_mistakes.plain(seed=version)
            rollout = group(f"rollout-{version}", [wct.layout(copy)], model="sharded")[0]
            rollout.replicate(version, deadline=3 * SOON)
            expected = torch.load(tmp_path / f"expected-{version}.pt", weights_only=True)
            for name, tensor in copy.state_dict().items():
                assert torch.equal(tensor, expected[name]), (version, name)
        for rank in ranks:
            _, errors = rank.communicate(timeout=3 * SOON)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate(timeout=SOON)


def test_numpy_arrays_have_no_storage_to_replace(group):
    weight = np.zeros(4, "f4")
    handle = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")[0]
    handle.publish(1, deadline=SOON, seal=True)
