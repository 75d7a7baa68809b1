"""What a Megatron model says of itself, and what is refused: one rank, no training."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("megatron.core", reason="megatron-core is not installed: make test-trainers installs it")

import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer.module import Float16Module
from torch.testing._internal.distributed.fake_pg import FakeStore

import weightcast as wc
from weightcast.adapters import megatron

from . import megatron_job
from .jobs import Job

SMALL = Job(layers=2)
EXPERTS = {"num_moe_experts": 2, "moe_ffn_hidden_size": 24}


@pytest.fixture
def alone() -> Iterator[None]:
    """This process is a job; nothing is sent."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    mpu.initialize_model_parallel(create_gloo_process_groups=False)
    yield
    mpu.destroy_model_parallel()
    dist.destroy_process_group()


def within(model: nn.Module) -> nn.Module:
    """A module that has another one, as wrappers have."""
    wrapper = nn.Module()
    wrapper.module = model
    return wrapper


def catalog(model: GPTModel, vocab: int = 61) -> dict[str, Any]:
    """What the checkpoint of a model of this job has."""
    hidden, layers = 32, model.config.num_layers
    inner = {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (32, hidden), "self_attn.k_proj.weight": (16, hidden),
        "self_attn.v_proj.weight": (16, hidden), "self_attn.o_proj.weight": (hidden, 32),
        "mlp.gate_proj.weight": (48, hidden), "mlp.up_proj.weight": (48, hidden), "mlp.down_proj.weight": (hidden, 48),
    }
    outside = {
        "model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden),
    }
    names = outside | {f"model.layers.{n}.{name}": shape for n in range(layers) for name, shape in inner.items()}
    return {name: (shape, torch.float32) for name, shape in names.items()}


def test_a_checkpoint_is_met_and_tells_its_vocabulary(alone: None) -> None:
    model = megatron_job.build(SMALL)
    whole, short = megatron.layout(model), megatron.layout(model, expect=catalog(model))
    assert len(short) == len(whole)
    assert short.nbytes == whole.nbytes == 4 * sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("wrap", [
    lambda model: model, lambda model: [model], lambda model: [within(within(model))],
    lambda model: Float16Module(SimpleNamespace(fp16=False, bf16=True, virtual_pipeline_model_parallel_size=None), model),
])
def test_wrapped_models_and_lists_of_chunks_are_models(alone: None, wrap: Any) -> None:
    model = megatron_job.build(SMALL)
    wrapped = wrap(model)
    assert len(megatron.layout(wrapped, expect=catalog(model))) == len(megatron.layout(model))
    assert megatron.replica("trainer", wrapped) == wc.Replica("trainer")


def test_a_checkpoint_with_other_names_is_refused(alone: None) -> None:
    model = megatron_job.build(SMALL)
    expected = catalog(model)
    expected["model.layers.1.mlp.dense.weight"] = expected.pop("model.layers.1.mlp.down_proj.weight")
    with pytest.raises(wc.LayoutMismatch, match="model.layers.1.mlp.down_proj.weight") as refused:
        megatron.layout(model, expect=expected)
    assert "names of the checkpoint are not published" in str(refused.value)


def test_a_vocabulary_larger_than_the_models_is_refused(alone: None) -> None:
    with pytest.raises(wc.LayoutMismatch, match="model.embed_tokens.weight has 65 rows in the checkpoint, and 64"):
        megatron.layout(megatron_job.build(SMALL), vocab_size=65)


def test_renamed_and_left_out(alone: None) -> None:
    model = megatron_job.build(SMALL)
    rename = {"lm_head.weight": None, "model.norm.weight": "norm"}
    expected = catalog(model)
    del expected["lm_head.weight"]
    expected["norm"] = expected.pop("model.norm.weight")
    layout = megatron.layout(model, rename=lambda name: rename.get(name, name), expect=expected)
    assert len(layout) == len(megatron.layout(model)) - 1
    with pytest.raises(wc.Misuse, match="linear_qkv.weight: rename leaves out some of"):
        megatron.layout(model, rename=lambda name: None if "k_proj" in name else name)


def test_parameters_without_a_name_are_refused_and_can_be_named(alone: None) -> None:
    model = megatron_job.build(SMALL)
    model.decoder.layers[1].extra = nn.Linear(2, 2, bias=False)
    with pytest.raises(wc.LayoutMismatch, match=r"decoder.layers.1.extra.weight: weightcast knows no published name"):
        megatron.layout(model)
    named = wc.NameMap({"decoder.layers.*.extra.*": "model.layers.*.extra.*"})
    assert len(megatron.layout(model, names=named)) == len(megatron.layout(megatron_job.build(SMALL))) + 1
    assert len(megatron.layout(model, names=wc.NameMap({"*.extra.*": None}))) == len(megatron.layout(model, names=named)) - 1


def test_parameters_that_megatron_does_not_write_are_refused(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = megatron_job.build(SMALL)
    norm = model.decoder.layers[0].self_attention.linear_proj
    monkeypatch.setattr(norm, "sharded_state_dict", lambda *_, **__: {}, raising=False)
    with pytest.raises(wc.LayoutMismatch, match="decoder.layers.0.self_attention.linear_proj.weight"):
        megatron.layout(model)


def test_parameters_of_which_megatron_writes_a_part_are_refused(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = megatron_job.build(SMALL)
    linear = model.decoder.layers[1].self_attention.linear_proj
    written = linear.sharded_state_dict

    def half(*arguments: Any, **more: Any) -> dict[str, Any]:
        state = written(*arguments, **more)
        for one in state.values():
            if getattr(one, "local_shape", None):
                one.data, one.local_shape = one.data[:16], (16, 32)
        return state

    monkeypatch.setattr(linear, "sharded_state_dict", half, raising=False)
    with pytest.raises(wc.LayoutMismatch, match="1 tensors .*not wholly.*\ndecoder.layers.1.self_attention.linear_proj"):
        megatron.layout(model)


def test_copies_are_refused(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the legacy GroupedMLP, which transposes, has them."""
    model = megatron_job.build(SMALL)
    linear = model.decoder.layers[0].self_attention.linear_proj
    written = linear.sharded_state_dict

    def copied(*arguments: Any, **more: Any) -> dict[str, Any]:
        state = written(*arguments, **more)
        for one in state.values():
            if getattr(one, "local_shape", None):
                one.data = one.data.clone()
        return state

    monkeypatch.setattr(linear, "sharded_state_dict", copied, raising=False)
    with pytest.raises(wc.Misuse, match="linear_proj.weight: Megatron hands out a copy"):
        megatron.layout(model)


def test_heads_that_the_config_does_not_have_are_refused(alone: None) -> None:
    model = megatron_job.build(SMALL)
    model.config.num_query_groups = 4
    with pytest.raises(wc.LayoutMismatch, match=r"linear_qkv.weight has 64 rows; .* of the model's config are 96"):
        megatron.layout(model)


def test_norms_less_one_are_refused(alone: None) -> None:
    model = megatron_job.build(SMALL)
    model.config.layernorm_zero_centered_gamma = True
    with pytest.raises(wc.Misuse, match="layernorm_zero_centered_gamma"):
        megatron.layout(model)


def test_parameters_that_are_gathered_late_are_refused(alone: None) -> None:
    model = megatron_job.build(SMALL)
    wrapped = nn.Module()
    wrapped.module, wrapped.ddp_config = model, SimpleNamespace(overlap_param_gather=True)
    with pytest.raises(wc.Misuse, match=r"overlap_param_gather: .*start_param_sync\(force_sync=True\)"):
        megatron.layout([wrapped])
    assert len(megatron.layout([wrapped], synced=True)) == len(megatron.layout(model))
    wrapped.ddp_config.overlap_param_gather = False
    assert len(megatron.layout([wrapped])) == len(megatron.layout(model))


def test_experts_and_a_correction_of_the_router(alone: None) -> None:
    model = megatron_job.build(Job(layers=1, config=EXPERTS))
    del model.decoder.layers[0].mlp.router.expert_bias  # there is none without a GPU
    model.decoder.layers[0].mlp.router.register_buffer("expert_bias", torch.zeros(2))
    expected = {name: shape for name, shape in catalog(model).items() if ".mlp." not in name}
    for name, shape in {"gate": (2, 32), "experts.0.gate_proj": (24, 32), "experts.0.up_proj": (24, 32),
                        "experts.0.down_proj": (32, 24), "experts.1.gate_proj": (24, 32),
                        "experts.1.up_proj": (24, 32), "experts.1.down_proj": (32, 24)}.items():
        expected[f"model.layers.0.mlp.{name}.weight"] = (shape, torch.float32)
    expected["model.layers.0.mlp.gate.e_score_correction_bias"] = ((2,), torch.float32)
    megatron.layout(model, expect=expected)


def test_parameters_with_other_storage_are_noticed(alone: None) -> None:
    model = megatron_job.build(SMALL)
    layout = megatron.layout(model)
    assert layout.origins.moved() is None
    weight = model.decoder.layers[1].mlp.linear_fc2.weight
    weight.data = weight.data.clone()
    assert "decoder.layers.1.mlp.linear_fc2.weight: the storage has been replaced" in layout.origins.moved()


def test_every_chunk_of_a_pipeline_is_watched() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mpu.initialize_model_parallel(1, 2, 2, create_gloo_process_groups=False)
    try:
        chunks = [megatron_job.build(Job(pp=2, chunks=2, world=2), chunk) for chunk in range(2)]
        layout = megatron.layout(chunks)
        assert layout.origins.moved() is None
        weight = chunks[1].decoder.layers[0].mlp.linear_fc2.weight
        weight.data = weight.data.clone()
        assert "decoder.layers.0.mlp.linear_fc2.weight: the storage" in layout.origins.moved()
    finally:
        mpu.destroy_model_parallel()
        dist.destroy_process_group()
