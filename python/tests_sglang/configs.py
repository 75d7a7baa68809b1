"""Tiny random configs that SGLang's model classes take, and parallelisms."""

import random
from dataclasses import dataclass
from typing import Any

from tests_vllm import configs
from tests_vllm.configs import MOE

#: Families whose classes know DP attention. The others spread theirs over all ranks, whatever is set.
DP_ATTENTION = ("qwen3", *MOE)

#: Without it the classes with latent attention have no rotary embedding on a CPU.
SCALED = {
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "deepseek_yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
}


@dataclass(frozen=True)
class Parallelism:
    """How an engine is spread, and which rank of it."""

    tp: int
    rank: int
    ep: int = 1
    #: Replicas of the attention, each on as many ranks as are left to it.
    attn_dp: int = 1
    #: Dense layers are whole on every rank.
    dense_whole: bool = False

    @property
    def spec(self) -> str:
        """As `weightcast layout --spec` writes it."""
        more = f",attn_dp={self.attn_dp}" + (",moe_dense_tp=1" if self.dense_whole else "")
        return f"sglang:tp={self.tp},ep={self.ep}{more}"

    @property
    def arguments(self) -> dict[str, Any]:
        """As `build` takes it. With DP attention the head is spread as the attention is."""
        spread: dict[str, Any] = {"tp": self.tp, "rank": self.rank, "ep": self.ep}
        if self.attn_dp > 1:
            spread |= {"dp_size": self.attn_dp, "enable_dp_attention": True, "enable_dp_lm_head": True}
        if self.dense_whole:
            spread["moe_dense_tp_size"] = 1
        return spread


def config(family: str, draw: random.Random) -> dict[str, Any]:
    """As those for vLLM, but for what SGLang's classes do not look at."""
    drawn = configs.config(family, draw)
    if family == "qwen3_moe":
        # All layers have experts, and the head has its own weights, whatever a config says.
        drawn |= {"mlp_only_layers": [], "tie_word_embeddings": False}
    if family == "deepseek_v3":
        drawn |= SCALED
    return drawn


def parallelism(family: str, drawn: dict[str, Any], draw: random.Random) -> Parallelism:
    """TP 1, 2, 4 or 8, half of them with DP attention, and experts sometimes on as many ranks as
    they can be dealt to."""
    tp = draw.choice((1, 2, 4, 8))
    attn_dp = 1
    if family in DP_ATTENTION and draw.random() < 0.5:
        attn_dp = draw.choice([dp for dp in (2, 4, 8) if dp <= tp] or [1])
    experts = drawn.get("num_experts") or drawn.get("n_routed_experts") or 0
    return Parallelism(
        tp,
        draw.randrange(tp),
        ep=tp if family in MOE and experts % tp == 0 and draw.random() < 0.5 else 1,
        attn_dp=attn_dp,
        dense_whole=family in MOE and attn_dp > 1 and draw.random() < 0.5,
    )
