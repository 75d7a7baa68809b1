"""FP8 checkpoints with block scales: weights and scales lie where the rules say; scales of a grid that
the loader refines go through it."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import weightcast as wc
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog, Entry
from weightcast.adapters.recording.recorder import DTYPES
from weightcast.testing import Checkpoint, conform

from .configs import config
from .cpu import claim_fp8
from .engine import build
from .rules import Rules, laid
from .test_conformance import ranks

BLOCK = 128


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    claim_fp8(monkeypatch.setattr)


def quantised(family: str, draw: random.Random, **changes: Any) -> dict[str, Any]:
    drawn = config(family, draw) | {
        "hidden_size": BLOCK * draw.randint(1, 3),
        "intermediate_size": 2 * BLOCK * draw.randint(1, 2),
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": BLOCK,
        "tie_word_embeddings": False,
        "num_hidden_layers": 2,
    }
    if family == "qwen3_moe":
        drawn |= {
            "moe_intermediate_size": BLOCK * draw.choice((2, 4)),
            "num_experts": 8,
            "mlp_only_layers": [],
        }
    drawn |= changes
    plain = ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(2))]
    return drawn | {
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK],
            "modules_to_not_convert": plain,
        }
    }


def with_scales(catalog: Catalog) -> Catalog:
    """What the checkpoint holds when its projections are FP8."""
    listed = {}
    for name, entry in catalog.items():
        if name.endswith("_proj.weight"):
            listed[name] = Entry(entry.shape, "F8_E4M3")
            blocks = tuple(math.ceil(n / BLOCK) for n in entry.shape)
            listed[f"{name}_scale_inv"] = Entry(blocks, "F32")
        else:
            listed[name] = entry
    return listed


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("family", "ep"), [("qwen3", False), ("qwen3_moe", True)])
def test_weights_and_scales_lie_as_by_rule(
    family: str, ep: bool, seed: int, tmp_path: Path
) -> None:
    draw = random.Random(f"fp8 {family} {seed}")
    drawn = quantised(family, draw)
    rules = Rules(drawn, tmp_path)
    catalog = with_scales(rules.catalog())
    tp = 2
    rank = draw.randrange(tp)
    live = vllm.read(build(drawn, tp=tp, rank=rank, ep=ep), catalog)
    spec = f"vllm:tp={tp},quant=fp8" + (f",ep={tp}" if ep else "")
    by_rule = laid(rules.records(spec, rank), catalog)
    by_rule = {name: record for name, record in by_rule.items() if record[2]}
    assert laid([record.as_json() for record in live.records], catalog) == by_rule
    assert set(live.unsourced.values()) == {
        "an attention scale, which the engine sets to 1"
    }
    assert not live.conversions


def test_weights_and_scales_arrive(tmp_path: Path) -> None:
    drawn = quantised("qwen3_moe", random.Random("fp8"))
    catalog = with_scales(Rules(drawn, tmp_path).catalog())
    tensors = {
        name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        for name, entry in catalog.items()
    }
    conform(ranks(drawn, 2, True), Checkpoint(tensors))


def test_a_version_without_scales_is_refused(tmp_path: Path) -> None:
    drawn = quantised("qwen3", random.Random(0))
    catalog = Rules(drawn, tmp_path).catalog()
    with pytest.raises(wc.LayoutMismatch, match="weight_scale_inv") as refused:
        vllm.read(build(drawn, tp=1, rank=0), catalog)
    assert "nearest: model.layers." in str(refused.value)


@pytest.mark.parametrize(("tp", "width"), [(2, 384), (4, 256), (4, 768)])
def test_a_refined_scale_grid_goes_through_the_loader(tp: int, width: int, tmp_path: Path) -> None:
    """Ranks cut blocks of 128 in two, or begin in the middle of one: vLLM repeats scales for a finer
    grid, and gets the published ones for that."""
    drawn = quantised("qwen3_moe", random.Random(0), moe_intermediate_size=width)
    catalog = with_scales(Rules(drawn, tmp_path).catalog())
    live = vllm.read(build(drawn, tp=tp, rank=1), catalog)
    refined = {c.parameter.rpartition(".")[2] for c in live.conversions}
    assert refined == {"w13_weight_scale_inv", "w2_weight_scale_inv"}
    with pytest.raises(wc.Misuse, match="w13_weight_scale_inv: a copy, which"):
        live.layout()
    tensors = {
        name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        for name, entry in catalog.items()
    }
    conform(ranks(drawn, tp, False), Checkpoint(tensors))
