"""Whatever is drawn from the whole grammar, the rules say what the real class does, or both refuse."""

import random
from pathlib import Path

import pytest
import weightcast as wc
from tests_vllm.rules import Rules, laid
from tests_vllm.space import MOE, Case, catalog_of, config, quantised
from weightcast.adapters import sglang

from .configs import SCALED
from .engine import Fp8Config, build

DRAWS = 150

#: Those whose classes know data-parallel attention. (llama, qwen2 and mixtral spread theirs over all
#: ranks, whatever is set.)
FAMILIES = ("qwen3", "qwen2_moe", "qwen3_moe", "glm4_moe", "deepseek_v2", "deepseek_v3")

#: How SGLang refuses a config or a parallelism.
REFUSALS = (AssertionError, ValueError, ZeroDivisionError, RuntimeError, KeyError, wc.LayoutMismatch)


def case(seed: int) -> Case:
    draw = random.Random(f"space {seed}")
    family = draw.choice(FAMILIES)
    drawn = config(family, draw)
    if family.startswith("qwen3"):
        # The classes drop the bias of the output without a word; the rules refuse it.
        drawn["attention_bias"] = False
    drawn |= {"mlp_only_layers": [], "decoder_sparse_step": 1} if family in MOE else {}
    drawn |= {"tie_word_embeddings": False} if family in MOE else {}
    drawn |= SCALED if "kv_lora_rank" in drawn else {}
    tp = draw.choice((1, 2, 2, 3, 4, 4, 6, 8))
    degrees = [n for n in range(1, tp + 1) if tp % n == 0]
    spec = {"tp": tp, "ep": draw.choice(degrees) if family in MOE else 1, "attn_dp": 1}
    if draw.random() < 0.5:
        spec["attn_dp"] = draw.choice(degrees)
    if draw.random() < 0.3:
        spec["moe_dense_tp"] = 1
    if draw.random() < 0.5:
        spec["dtype"] = draw.choice(("bf16", "fp16"))
    arguments = {
        "tp": tp,
        "rank": draw.randrange(tp),
        "ep": spec["ep"],
        "dtype": {"fp16": "float16"}.get(spec.get("dtype"), "bfloat16"),
    }
    if spec["attn_dp"] > 1:
        arguments |= {
            "dp_size": spec["attn_dp"], "enable_dp_attention": True, "enable_dp_lm_head": True,
        }
    if "moe_dense_tp" in spec:
        arguments["moe_dense_tp_size"] = 1
    if draw.random() < 0.25:
        block = draw.choice((8, 16))
        drawn = quantised(drawn, (block, block), draw)
        arguments["fp8"] = Fp8Config(
            is_checkpoint_fp8_serialized=True,
            activation_scheme="dynamic",
            ignored_layers=drawn["quantization_config"]["modules_to_not_convert"],
            weight_block_size=[block, block],
        )
    written = "sglang:" + ",".join(f"{key}={value}" for key, value in spec.items())
    return Case(drawn, arguments["rank"], written, arguments)


@pytest.mark.parametrize("seed", range(DRAWS))
def test_rules_equal_the_real_class(seed: int, tmp_path: Path) -> None:
    drawn = case(seed)
    rules = Rules(drawn.config, tmp_path)
    catalog = catalog_of(rules, drawn.config)
    try:
        live = sglang.read(build(drawn.config, **drawn.arguments), catalog, as_loaded=True)
    except REFUSALS as refused:
        assert rules.refuse(drawn.spec, drawn.rank), (drawn, refused)
        return
    by_rule = laid(rules.records(drawn.spec, drawn.rank), catalog)
    found = laid([record.as_json() for record in live.records], catalog)
    found = {name: record for name, record in found.items() if name not in live.unsourced}
    assert found == by_rule, drawn
