"""Tiny random configs of each model family, and parallelisms that vLLM takes for them."""

import random
from dataclasses import dataclass
from typing import Any

DENSE = ("qwen2", "qwen3", "llama")
MOE = ("qwen3_moe", "glm4_moe", "deepseek_v3")
FAMILIES = DENSE + MOE


@dataclass(frozen=True)
class Parallelism:
    """How an engine is spread, and which rank of it."""

    tp: int
    rank: int
    ep: bool = False
    placement: str = "linear"

    @property
    def spec(self) -> str:
        """As `weightcast layout --spec` writes it."""
        expert = f",ep={self.tp},placement={self.placement}" if self.ep else ""
        return f"vllm:tp={self.tp}{expert}"


def config(family: str, draw: random.Random) -> dict[str, Any]:
    """A config that loads at TP 1, 2, 4 and 8."""
    heads = draw.choice((8, 16))
    common = {
        "model_type": family,
        "hidden_size": draw.choice((64, 128)),
        "intermediate_size": 8 * draw.randint(3, 12),
        "num_hidden_layers": draw.randint(1, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice((1, 2, 4, 8)),
        "vocab_size": draw.randint(100, 700),
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": draw.random() < 0.4,
    }
    return common | FAMILY[family](draw, common)


def parallelism(family: str, draw: random.Random) -> Parallelism:
    """TP 1, 2, 4 or 8, and for experts sometimes EP, any rank."""
    tp = draw.choice((1, 2, 4, 8))
    ep = family in MOE and tp > 1 and draw.random() < 0.5
    placement = "round_robin" if ep and family == "deepseek_v3" and draw.random() < 0.5 else "linear"
    return Parallelism(tp, draw.randrange(tp), ep, placement)


def _qwen2(draw: random.Random, common: dict) -> dict:
    return {"architectures": ["Qwen2ForCausalLM"]}


def _qwen3(draw: random.Random, common: dict) -> dict:
    return {"architectures": ["Qwen3ForCausalLM"], "head_dim": draw.choice((8, 16, 32))}


def _llama(draw: random.Random, common: dict) -> dict:
    return {"architectures": ["LlamaForCausalLM"]}


def _qwen3_moe(draw: random.Random, common: dict) -> dict:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": draw.choice((8, 16)),
        "num_experts": draw.choice((8, 14, 16)),
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8 * draw.randint(2, 6),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0] if common["num_hidden_layers"] > 1 and draw.random() < 0.4 else [],
        "norm_topk_prob": True,
    }


def _deepseek(draw: random.Random, common: dict) -> dict:
    # Neither vLLM model ties its head, whatever the config says.
    layers = common["num_hidden_layers"]
    groups = draw.choice((2, 4))
    return {
        "tie_word_embeddings": False,
        "n_routed_experts": groups * draw.choice((4, 5)),
        "n_shared_experts": draw.choice((1, 2)),
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8 * draw.randint(2, 6),
        "first_k_dense_replace": min(draw.randint(0, 1), layers - 1),
        "n_group": groups,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": draw.randint(0, 1),
    }


def _glm4_moe(draw: random.Random, common: dict) -> dict:
    return _deepseek(draw, common) | {
        "architectures": ["Glm4MoeForCausalLM"],
        "head_dim": 16,
        "n_group": 1,
        "use_qk_norm": draw.random() < 0.5,
        "attention_bias": draw.random() < 0.5,
        "partial_rotary_factor": 0.5,
    }


def _deepseek_v3(draw: random.Random, common: dict) -> dict:
    return _deepseek(draw, common) | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_key_value_heads": common["num_attention_heads"],
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "q_lora_rank": draw.choice((None, 32, 48)),
        "kv_lora_rank": draw.choice((16, 32)),
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "moe_layer_freq": 1,
    }


FAMILY = {
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "llama": _llama,
    "qwen3_moe": _qwen3_moe,
    "glm4_moe": _glm4_moe,
    "deepseek_v3": _deepseek_v3,
}
