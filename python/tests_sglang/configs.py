"""Tiny random configs that SGLang's model classes take, and parallelisms."""

import random
from dataclasses import dataclass
from typing import Any

from tests_vllm import configs
from tests_vllm.configs import MOE


@dataclass(frozen=True)
class Parallelism:
    """How an engine is spread, and which rank of it."""

    tp: int
    rank: int
    ep: int

    @property
    def spec(self) -> str:
        """As `weightcast layout --spec` writes it."""
        return f"sglang:tp={self.tp},ep={self.ep}"


def config(family: str, draw: random.Random) -> dict[str, Any]:
    """As those for vLLM, but for what SGLang's classes do not look at."""
    drawn = configs.config(family, draw)
    if family == "qwen3_moe":
        # All layers have experts, and the head has its own weights, whatever a config says.
        drawn |= {"mlp_only_layers": [], "tie_word_embeddings": False}
    if family == "deepseek_v3":
        # Without it the class has no rotary embedding on a CPU.
        drawn["rope_scaling"] = {
            "type": "yarn",
            "rope_type": "deepseek_yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        }
    return drawn


def parallelism(family: str, drawn: dict[str, Any], draw: random.Random) -> Parallelism:
    """TP 1, 2, 4 or 8, and for experts sometimes EP of as many ranks as they can be dealt to."""
    tp = draw.choice((1, 2, 4, 8))
    experts = drawn.get("num_experts") or drawn.get("n_routed_experts") or 0
    spread = family in MOE and experts % tp == 0 and draw.random() < 0.5
    return Parallelism(tp, draw.randrange(tp), tp if spread else 1)
