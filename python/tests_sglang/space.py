"""Models, ranks and options drawn from the whole grammar of `sglang:`, each as the rules are told of it
and as SGLang's classes are.

Not drawn: copies of experts for GLM-4, whose class has no room for them (a test of its own), copies
of one expert on one rank beside an all-to-all (SGLang fills the first of them alone, the rules fill
each), a draft beside a model of one layer, which takes that layer for its own. Not to be had on a CPU:
what kernels make of layers of experts after loading.
"""

import json
import random
from dataclasses import dataclass
from typing import Any

from tests_vllm.space import MOE, config, quantised

from .configs import SCALED
from .engine import Fp8Config

#: Those whose classes know data-parallel attention. (llama, qwen2 and mixtral spread theirs over all
#: ranks, whatever is set.)
FAMILIES = ("qwen3", "qwen2_moe", "qwen3_moe", "glm4_moe", "deepseek_v2", "deepseek_v3")
LATENT = ("deepseek_v2", "deepseek_v3")
#: Those whose classes have room for copies of experts.
COPIED = ("qwen2_moe", "qwen3_moe", *LATENT)
#: Those with a draft model.
DRAFTS = ("glm4_moe", "deepseek_v3")


@dataclass(frozen=True)
class Case:
    """A config and a spec for the rules; what the checkpoint is then, and how the classes are told."""

    config: dict[str, Any]
    spec: str
    rank: int
    published: dict[str, Any]
    arguments: dict[str, Any]
    draft: bool


def case(seed: int) -> Case:
    draw = random.Random(f"space {seed}")
    family = draw.choice(FAMILIES)
    drawn = _config(family, draw)
    spec, arguments = _degrees(family, draw)
    if family in MOE:
        twice = _experts(family, drawn, spec, arguments, draw)
        _shared_experts(family, spec, arguments, twice, draw)
    draft = family in DRAFTS and draw.random() < 0.4
    if draft:
        spec["mtp"] = 1
        # One layer alone takes its draft for its own, which only a checkpoint of its own is.
        drawn["num_hidden_layers"] = max(2, drawn["num_hidden_layers"])
        drawn["num_nextn_predict_layers"] = draw.choice((1, 1, 1, 2))
    told, published = _quantised(drawn, spec, draw)
    if "quantization_config" in published:
        arguments["fp8"] = _fp8(published["quantization_config"])
    written = "sglang:" + ",".join(f"{key}={value}" for key, value in spec.items())
    return Case(told, written, arguments["rank"], published, arguments, draft)


def _config(family: str, draw: random.Random) -> dict[str, Any]:
    drawn = config(family, draw)
    if family.startswith("qwen3"):
        # The classes drop the bias of the output without a word; the rules refuse it.
        drawn["attention_bias"] = False
    drawn |= {"mlp_only_layers": [], "decoder_sparse_step": 1} if family in MOE else {}
    drawn |= {"tie_word_embeddings": False} if family in MOE else {}
    return drawn | (SCALED if "kv_lora_rank" in drawn else {})


def _degrees(family: str, draw: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
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
    return spec, arguments


def _experts(family: str, drawn: dict, spec: dict, arguments: dict, draw: random.Random) -> bool:
    """Copies of some, and which rank has which. Half of the copies make the number divide. Whether
    some rank has an expert twice."""
    count, ep = _count(drawn), spec["ep"]
    if family in COPIED and draw.random() < 0.5:
        copies = -count % ep or ep
        spec["redundant"] = draw.choice((copies, copies + ep, draw.randint(1, 2 * ep)))
        arguments["ep_num_redundant_experts"] = spec["redundant"]
    slots = count + spec.get("redundant", 0)
    each = slots // ep
    ranks = [[slot % count for slot in range(rank * each, (rank + 1) * each)] for rank in range(ep)]
    if draw.random() < 0.25:
        spec["placement"] = "round_robin"
        ranks = [[slot % count for slot in range(rank, slots, ep)] for rank in range(ep)]
        places = [expert for rank in ranks for expert in rank]
        listed = {"physical_to_logical_map": [places] * drawn["num_hidden_layers"]}
        arguments["init_expert_location"] = json.dumps(listed)
    return any(len(set(rank)) < len(rank) for rank in ranks)


def _count(drawn: dict) -> int:
    return drawn.get("num_experts") or drawn["n_routed_experts"]


def _shared_experts(
    family: str, spec: dict, arguments: dict, twice: bool, draw: random.Random
) -> None:
    """Whole on every rank: by the environment, or as they are beside an all-to-all."""
    if draw.random() > 0.3:
        return
    if family in LATENT and draw.random() < 0.5:
        spec["shared_tp"] = 1
        arguments["shared_whole"] = True
    elif spec["ep"] == spec["tp"] > 1 and not twice:
        # The engine spreads experts over all ranks with it, whatever is set.
        spec["shared_tp"] = 1
        arguments |= {"moe_a2a_backend": "deepep", "deepep_mode": "normal"}


def _quantised(drawn: dict, spec: dict, draw: random.Random) -> tuple[dict, dict]:
    """What the rules are told, and what is published: as the config says, or as the spec does."""
    block = draw.choice((8, 16)), draw.choice((8, 16))
    if draw.random() < 0.3:
        ragged = draw.random() < 0.3
        sizes = {key: size for key, size in drawn.items() if ragged and key == "moe_intermediate_size"}
        drawn = quantised(drawn, block, draw) | sizes
    plain = {key: value for key, value in drawn.items() if key != "quantization_config"}
    asked = draw.choice(("", "", "", "none", "fp8", "block", "fp8 block"))
    if asked == "none":
        spec["quant"] = "none"
        return drawn, plain
    if not asked:
        return drawn, drawn
    said = drawn.get("quantization_config", {"weight_block_size": [128, 128]})
    if "fp8" in asked:
        spec["quant"] = "fp8"
    if "block" in asked:
        spec["block"] = draw.choice((8, 16))
        said = said | {"weight_block_size": 2 * [spec["block"]]}
    made = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    made["modules_to_not_convert"] = []
    return drawn, plain | {"quantization_config": made | said}


def _fp8(said: dict) -> Fp8Config:
    return Fp8Config(
        is_checkpoint_fp8_serialized=True,
        activation_scheme="dynamic",
        ignored_layers=said["modules_to_not_convert"],
        weight_block_size=said["weight_block_size"],
    )
