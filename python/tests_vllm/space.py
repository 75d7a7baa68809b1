"""Configs drawn from the whole space, whether or not an engine takes them."""

import math
import random
from dataclasses import dataclass
from typing import Any

from weightcast.adapters.catalog import Catalog, Entry

from .rules import Rules

DENSE = ("llama", "qwen2", "qwen3", "glm4")
MOE = ("qwen2_moe", "qwen3_moe", "mixtral", "glm4_moe", "deepseek_v2", "deepseek_v3")

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}


@dataclass(frozen=True)
class Case:
    """A config, a rank, and an engine as the rules and as its classes are told of it."""

    config: dict[str, Any]
    rank: int
    spec: str
    arguments: dict[str, Any]


def config(family: str, draw: random.Random) -> dict[str, Any]:
    """A small model: heads, experts, rows and vocabulary of any number."""
    heads = draw.choice((4, 8, 8, 12, 16))
    layers = draw.randint(1, 4)
    drawn = {
        "model_type": family,
        "architectures": [ARCHITECTURES[family]],
        "hidden_size": 16 * heads,
        "intermediate_size": 24 * draw.randint(1, 8),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([n for n in (1, 2, 3, 4, 8) if heads % n == 0]),
        "head_dim": 16,
        "vocab_size": draw.choice((64, 65, 127, 128, 192, 448, draw.randint(30, 700))),
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5 if family.startswith("glm4") else 1.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "tie_word_embeddings": draw.random() < 0.3,
        "attention_bias": draw.random() < 0.3,
        "mlp_bias": family == "llama" and draw.random() < 0.3,
    }
    if family.startswith("qwen2"):
        # Its classes do not look at it.
        del drawn["head_dim"]
    if family in MOE and family != "mixtral":
        drawn["moe_intermediate_size"] = 24 * draw.randint(1, 4)
    return drawn | FAMILY.get(family, lambda *_: {})(draw, drawn)


def _count(draw: random.Random) -> int:
    """Of experts. Half of them divide among the ranks."""
    return draw.choice((8, 16, 24, draw.randint(3, 20)))


def _steps(draw: random.Random, drawn: dict) -> dict:
    step = min(draw.choice((1, 1, 2)), drawn["num_hidden_layers"])
    # vLLM wants one layer with experts at least: this one is.
    others = set(range(drawn["num_hidden_layers"])) - {step - 1}
    dense = [layer for layer in sorted(others) if draw.random() < 0.25]
    return {"decoder_sparse_step": step, "mlp_only_layers": dense}


def _qwen2_moe(draw: random.Random, drawn: dict) -> dict:
    shared = {"shared_expert_intermediate_size": 24 * draw.randint(1, 4)}
    return {"num_experts": _count(draw), "attention_bias": True} | shared | _steps(draw, drawn)


def _qwen3_moe(draw: random.Random, drawn: dict) -> dict:
    return {"num_experts": _count(draw)} | _steps(draw, drawn)


def _mixtral(draw: random.Random, drawn: dict) -> dict:
    return {"num_local_experts": _count(draw), "attention_bias": False}


def _deepseek(draw: random.Random, drawn: dict) -> dict:
    groups = draw.choice((1, 1, 2))
    return {
        "tie_word_embeddings": False,
        "n_routed_experts": groups * math.ceil(_count(draw) / groups),
        "n_shared_experts": draw.choice((1, 2)),
        "first_k_dense_replace": draw.randint(0, drawn["num_hidden_layers"] - 1),
        "n_group": groups,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
    }


def _glm4_moe(draw: random.Random, drawn: dict) -> dict:
    return _deepseek(draw, drawn) | {"n_group": 1, "use_qk_norm": draw.random() < 0.5}


def _latent(draw: random.Random, drawn: dict) -> dict:
    return _deepseek(draw, drawn) | {
        "num_key_value_heads": drawn["num_attention_heads"],
        "attention_bias": False,
        "q_lora_rank": draw.choice((None, 32, 48)),
        "kv_lora_rank": draw.choice((16, 32)),
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": draw.choice((16, 24)),
        "moe_layer_freq": draw.choice((1, 1, 2)),
        "scoring_func": "softmax",
        "topk_method": "greedy",
    }


def _deepseek_v3(draw: random.Random, drawn: dict) -> dict:
    return _latent(draw, drawn) | {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}


FAMILY = {
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "glm4_moe": _glm4_moe,
    "deepseek_v2": _latent,
    "deepseek_v3": _deepseek_v3,
}


def quantised(drawn: dict[str, Any], block: tuple[int, int], draw: random.Random) -> dict[str, Any]:
    """The same in FP8: sizes that mostly are whole blocks, and some layers left as they are."""
    wide = {
        key: max(block) * draw.choice((4, 8, 12))
        for key in ("intermediate_size", "moe_intermediate_size")
        if key in drawn
    }
    wide["hidden_size"] = math.lcm(max(block), drawn["num_attention_heads"])
    # With keys of half a block, classes load one scale over another without a word.
    wide["head_dim"] = max(block)
    wide["shared_expert_intermediate_size"] = max(block) * draw.choice((4, 8))
    layers = range(drawn["num_hidden_layers"])
    left = ["lm_head", *(f"model.layers.{n}.mlp.gate" for n in layers)]
    left += [f"model.layers.{n}.block_sparse_moe.gate" for n in layers]
    if draw.random() < 0.3:
        layer = draw.choice(layers)
        left += [f"model.layers.{layer}.self_attn.o_proj", f"model.layers.{layer}.mlp.down_proj"]
    return drawn | {key: size for key, size in wide.items() if key in drawn} | {
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": list(block),
            "modules_to_not_convert": left,
        }
    }


def catalog_of(rules: Rules, drawn: dict[str, Any], *, draft: bool = False) -> Catalog:
    """What the checkpoint holds: projections in FP8, but for those left as they are."""
    listed = dict(rules.catalog(draft=draft))
    if "quantization_config" not in drawn:
        return listed
    said = drawn["quantization_config"]
    left, block = said["modules_to_not_convert"], said["weight_block_size"]
    for name, entry in list(listed.items()):
        module, _, member = name.rpartition(".")
        projects = "_proj" in module or module.endswith((".w1", ".w2", ".w3"))
        # What joins a draft to its model is never quantised.
        projects = projects and not module.endswith(".eh_proj")
        if projects and member == "weight" and module not in left:
            listed[name] = Entry(entry.shape, "F8_E4M3")
            grid = tuple(math.ceil(n / side) for n, side in zip(entry.shape, block, strict=True))
            listed[f"{name}_scale_inv"] = Entry(grid, "F32")
    return listed
