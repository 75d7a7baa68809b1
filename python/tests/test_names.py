"""Names: wrappers, maps as data, stacks of experts, and what a transformers model saves."""

import random

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.adapters.catalog import catalog_of  # noqa: E402
from weightcast.names import TRANSFORMERS, Stack, map_of  # noqa: E402

from .conftest import SOON  # noqa: E402

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
}
ROUTED = {
    "n_routed_experts": 4,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}
LATENT = ROUTED | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
FAMILIES = {
    "qwen2": {},
    "qwen3": {},
    "llama": {},
    "qwen2_moe": {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 16},
    "glm4_moe": ROUTED,
    "glm4_moe_lite": LATENT | {"q_lora_rank": 16},
    "glm_moe_dsa": LATENT | {"q_lora_rank": 16, "index_topk": 4, "index_head_dim": 16, "index_n_heads": 2},
    "deepseek_v2": LATENT | {"q_lora_rank": None},
    "deepseek_v3": LATENT | {"q_lora_rank": 16},
    "mixtral": {"num_local_experts": 4},
    "minimax_m2": {"num_local_experts": 4},
    "phimoe": {"num_local_experts": 4},
    "olmoe": {"num_experts": 4},
    "gpt_oss": {"num_local_experts": 4},
}


def transformers_model(kind: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(kind, **(SMALL | FAMILIES[kind]))
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_transformers_model_is_published_as_it_is_saved(group, tmp_path, kind):
    """Name by name, shape by shape, and to the bit: what `save_pretrained` writes."""
    safetensors = pytest.importorskip("safetensors.torch")
    model = transformers_model(kind)
    model.save_pretrained(tmp_path)
    saved = {}
    for file in tmp_path.glob("*.safetensors"):
        saved |= safetensors.load_file(file)
    layout = wct.layout(model, expect=tmp_path)
    assert catalog_of(model) == catalog_of(tmp_path)
    trainer = group("trainer", [layout], role="trainer")[0]
    trainer.publish(1, deadline=SOON)
    memory = {name: torch.zeros_like(tensor) for name, tensor in saved.items()}
    target = wc.Layout()
    for name, tensor in memory.items():
        target.add(tensor, name)
    group("rollout", [target])[0].replicate(1, deadline=SOON)
    for name, tensor in saved.items():
        assert memory[name].equal(tensor), name


def test_every_known_kind_is_tried():
    assert set(TRANSFORMERS) <= set(FAMILIES)


def test_an_unknown_stack_is_refused():
    model = transformers_model("qwen3_moe")
    model.config.model_type = "of_tomorrow"
    with pytest.raises(wc.LayoutMismatch, match="experts.*type of_tomorrow.*give `names`"):
        wct.layout(model)
    names = wc.NameMap(TRANSFORMERS["qwen3_moe"])
    assert len(wct.layout(model, names=names)) == len(list(model.parameters()))


def test_what_a_wrapper_adds_is_left_out():
    names = wc.NameMap()
    assert names.published("a._orig_mod.b._checkpoint_wrapped_module.weight") == "a.b.weight"
    assert names.published("a.module.weight") == "a.module.weight"


def test_rows_of_a_map():
    names = wc.NameMap({
        "*.rotary.*": None,
        "model.language_model.*": "model.*",
        "*.experts.w13": ("*.{expert}.w1", "*.{expert}.w3"),
        "*.w13": "never",
    })
    assert names.published("model.rotary.freq") is None
    assert names.published("model.language_model.q.weight") == "model.q.weight"
    assert names.published("a.experts.w13") == Stack(("a.{expert}.w1", "a.{expert}.w3"))
    assert names.published("lm_head.weight") == "lm_head.weight"
    with pytest.raises(ValueError, match="a.*b: .*\\* that the left side does not fill"):
        wc.NameMap({"a.*b": "*.*"})


def test_a_stack_of_another_shape_is_refused():
    stack = Stack(("{expert}.a", "{expert}.b"))
    for shape in [(4, 6), (4, 5, 2)]:
        with pytest.raises(wc.LayoutMismatch, match="w has shape .*rows for 2 matrices"):
            stack.whole("w", shape)


@pytest.mark.parametrize("seed", range(200))
def test_slices_of_a_stack_lie_where_its_elements_are(seed):
    draw = random.Random(seed)
    experts, each, columns, count = (draw.randint(1, 5) for _ in range(4))
    stack = Stack(tuple(f"{{expert}}.{at}" for at in range(count)))
    shape = (experts, each * count, columns)
    whole = torch.arange(experts * each * count * columns).reshape(shape)
    matrices = {
        f"{e}.{at}": whole[e, at * each : (at + 1) * each]
        for e in range(experts)
        for at in range(count)
    }
    assert stack.whole("w", shape) == {name: tuple(m.shape) for name, m in matrices.items()}
    start = [draw.randrange(n) for n in shape]
    length = [draw.randint(0, n - s) for n, s in zip(shape, start, strict=True)]
    box = whole[tuple(slice(s, s + n) for s, n in zip(start, length, strict=True))]
    slices = stack.slices("w", shape, (start, length))
    taken = [
        matrices[p.name][tuple(slice(s, s + n) for s, n in zip(p.start, p.length, strict=True))] for p in slices
    ]
    assert all(p.shape == tuple(matrices[p.name].shape) for p in slices)
    flat = torch.cat([t.reshape(-1) for t in taken]) if taken else whole.reshape(-1)[:0]
    assert flat.equal(box.reshape(-1))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(3, 2, bias=False)
        self.value = nn.Linear(3, 2, bias=False)
        self.register_buffer("steps", torch.zeros(1))


def test_what_is_left_over_names_the_nearest():
    with pytest.raises(wc.LayoutMismatch) as error:
        expected = {"querry.weight": ((2, 3), "F32"), "value.weight": ((3, 2), "F32")}
        wct.layout(Two(), buffers=False, expect=expected)
    said = str(error.value)
    assert "1 published names are not in the checkpoint:\n  query.weight (nearest: querry" in said
    assert "1 names of the checkpoint are not published:\n  querry.weight (nearest: query" in said
    assert "value.weight is published as [2, 3], and is [3, 2] in the checkpoint" in said


def test_the_catalog_of_the_newest_version(group):
    """What an engine's layout is read by: global shapes, whoever holds which part."""
    model = transformers_model("qwen3_moe")
    rollout = group("rollout", [wc.Layout()], register=False)[0]
    trainer = group("trainer", [wct.layout(model)], role="trainer")[0]
    trainer.publish(1, deadline=SOON)
    assert rollout.catalog(deadline=SOON) == catalog_of(model)
    assert map_of(nn.Linear(1, 1)).published("weight") == "weight"
