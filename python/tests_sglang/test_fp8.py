"""FP8 models just loaded: weights and scales lie where the rules say, fused latent projections too."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

import weightcast as wc
from tests_vllm.configs import MOE
from tests_vllm.rules import Rules, laid
from weightcast.adapters import sglang
from weightcast.adapters.catalog import Catalog, Entry

from .configs import config
from .engine import Fp8Config, build

FAMILIES = ("qwen3", *MOE)


def quantised(family: str, draw: random.Random, block: int) -> dict[str, Any]:
    """A config whose shards are whole blocks at TP 2, as SGLang wants it."""
    drawn = config(family, draw)
    sizes = {"intermediate_size": 8 * block * draw.randint(1, 3), "moe_intermediate_size": 8 * block}
    drawn |= {key: size for key, size in sizes.items() if key in drawn}
    drawn |= {"num_key_value_heads": drawn["num_attention_heads"]}
    if drawn.get("q_lora_rank"):
        drawn["q_lora_rank"] = 32
    return drawn | {
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [block, block],
        }
    }


def with_scales(rules: Rules, block: int) -> Catalog:
    """What the checkpoint holds when all that a whole engine has in FP8 is FP8."""
    listed = dict(rules.catalog())
    for record in rules.records(f"sglang:tp=1,quant=fp8,block={block}"):
        if record["dtype"].startswith("F8"):
            for name, *_ in record["pieces"]:
                shape = listed[name].shape
                listed[name] = Entry(shape, record["dtype"])
                listed[f"{name}_scale_inv"] = Entry(tuple(math.ceil(n / block) for n in shape), "F32")
    return listed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_weights_and_scales_lie_as_by_rule(family: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{family} {seed}")
    block = draw.choice((8, 16))
    drawn = quantised(family, draw, block)
    rules = Rules(drawn, tmp_path)
    catalog = with_scales(rules, block)
    tp = draw.choice((1, 2))
    rank, ep = draw.randrange(tp), tp if family in MOE and draw.random() < 0.5 else 1
    fp8 = Fp8Config(
        is_checkpoint_fp8_serialized=True,
        activation_scheme="dynamic",
        weight_block_size=[block, block],
    )
    model = build(drawn, tp=tp, rank=rank, ep=ep, fp8=fp8)
    live = sglang.read(model, catalog, as_loaded=True)
    spec = f"sglang:tp={tp},ep={ep},quant=fp8,block={block}"
    by_rule = laid(rules.records(spec, rank), catalog)
    assert laid([record.as_json() for record in live.records], catalog) == by_rule, (drawn, spec)
    with pytest.raises(wc.Misuse, match="Fp8LinearMethod"):
        sglang.read(model, catalog)
