"""Names: wrappers, maps as data, stacks of experts, and what a transformers model saves."""

import random

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.adapters.catalog import catalog_of  # noqa: E402
from weightcast.names import TRANSFORMERS, Stack, map_of, renamed  # noqa: E402

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


@pytest.mark.parametrize(
    ("rows", "name", "published"),
    [
        # Stars are filled in their order, and may take nothing or several parts.
        ({"a.*.b.*": "x.*.y.*"}, "a.1.b.2", "x.1.y.2"),
        ({"a.*.b.*": "x.*"}, "a.1.b.2", "x.1"),
        ({"*a*": "*-*"}, "a", "-"),
        ({"m.*": "*"}, "m.c.d", "c.d"),
        ({"m.*": ""}, "m.c", ""),
        # A point is a point, and a row fits a whole name.
        ({"a.b": "x"}, "aXb", "aXb"),
        ({"a.b": "x"}, "a.b.c", "a.b.c"),
        ({"b": "x"}, "a.b", "a.b"),
        ({"a[0]+": "x"}, "a[0]+", "x"),
        # The first row decides, also where it leaves out, and what it makes is not mapped again.
        ({"a.*": None, "a.b": "x"}, "a.b", None),
        ({"a.b": "x", "a.*": None}, "a.b", "x"),
        ({"a": "b", "b": "c"}, "a", "b"),
        # What wrappers add is no part of a name, wherever it stands; similar parts are.
        ({"a.b": "x"}, "_orig_mod.a._fsdp_wrapped_module.b", "x"),
        ({}, "_fsdp_wrapped_module._orig_mod.a", "a"),
        ({}, "a._orig_mod2.b", "a._orig_mod2.b"),
        ({}, "a_orig_mod.b", "a_orig_mod.b"),
        ({"*.w": ("*.{expert}.u", "*.{expert}.v")}, "m._checkpoint_wrapped_module.w", Stack(("m.{expert}.u", "m.{expert}.v"))),
        ({"*.w": ["v.*"]}, "m.w", Stack(("v.m",))),
    ],
)
def test_what_a_row_makes_of_a_name(rows, name, published):
    assert wc.NameMap(rows).published(name) == published


def test_what_is_published_is_renamed_matrix_by_matrix():
    stack = Stack(("{expert}.gate", "{expert}.up"))
    assert renamed("w", None, "p") == "w" and renamed(None, str.upper, "p") is None and renamed(stack, None, "p") == stack
    assert renamed("w", lambda name: f"m.{name}", "p") == "m.w"
    assert renamed("w", lambda name: None, "p") is None
    assert renamed(stack, lambda name: f"m.{name}", "p") == Stack(("m.{expert}.gate", "m.{expert}.up"))
    for keeps in (lambda name: None if "up" in name else name, lambda name: name.replace("{expert}", "0"), lambda name: None):
        with pytest.raises(wc.Misuse, match="p: rename keeps {expert} in the names of a stack's matrices"):
            renamed(stack, keeps, "p")


def test_a_star_that_nothing_fills_is_refused_in_any_matrix():
    for right in ("*.*", ("*.{expert}", "*.*.{expert}")):
        with pytest.raises(ValueError, match=r"a\.\*: .*\*\.\*.* has a \* that the left side does not fill"):
            wc.NameMap({"a.*": right})
    assert wc.NameMap({"*.*": "*"}).published("a.b") == "a"


class Config:
    def __init__(self, kind):
        self.model_type = kind


def test_only_a_stack_of_experts_needs_a_known_kind():
    """As many dimensions as a stack has, also where DeepSpeed has cut it; of other parameters nobody asks."""
    for name, shape, cut, known in (
        ("experts.gate_up_proj", (4, 6, 2), None, False),
        ("experts.down_proj", (4, 6, 2), None, False),
        ("experts.down_proj", (4, 6), None, True),
        ("experts.down_proj", (0,), (4, 6, 2), False),
        ("experts.other", (4, 6, 2), None, True),
    ):
        model, block = nn.Module(), nn.Module()
        model.config, model.mlp, block.experts = Config("of_tomorrow"), block, nn.Module()
        parameter = nn.Parameter(torch.zeros(shape))
        if cut is not None:
            parameter.ds_shape = cut
        block.experts.register_parameter(name.removeprefix("experts."), parameter)
        if known:
            assert map_of(model).published(f"mlp.{name}") == f"mlp.{name}"
        else:
            with pytest.raises(wc.LayoutMismatch, match=f"mlp.{name}: a stack of experts, in a model of type of_tomorrow"):
                map_of(model)
        del model.config
        assert map_of(model).published(f"mlp.{name}") == f"mlp.{name}", "no model of transformers"


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
