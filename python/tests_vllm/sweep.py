"""Every family that transformers and vLLM both know, through the conformance kit: a line for each says
whether its layout is verified, refused or wrong. Minutes; `make families`.

    python -m tests_vllm.sweep [FAMILY ...]
"""

import logging
import sys
from collections.abc import Iterator

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import disable_progress_bar
from vllm.model_executor.models.registry import _VLLM_MODELS

import weightcast as wc
from weightcast.testing import Checkpoint, Nonconformity, conform

from .cpu import claim_experts
from .families import MENDED, Family
from .ranks import Ranks, blank
from .test_families import ranks

#: What configs of experts and of attention call their sizes; the others do not look at them.
SIZES = {
    "head_dim": 16,
    "ffn_dim": 96,
    "rotary_dim": 8,
    "block_dim": 64,
    "moe_intermediate_size": 96,
    "first_k_dense_replace": 1,
    "score_func": "sigmoid",
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "shared_intermediate_size": 32,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "pad_token_id": 0,
}
#: What vLLM asks for and transformers' configs do not have.
OWN = {
    "afmoe": {"route_norm": True, "route_scale": 1.0},
    "deepseek_v3": {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
}
#: What a tiny model has at most.
ELEMENTS = 4_000_000


def families() -> dict[str, Family]:
    """By transformers' type, and those with configs of their own."""
    found = {}
    for model_type, architecture in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()):
        if isinstance(architecture, str) and architecture in _VLLM_MODELS:
            found[model_type] = Family(model_type, architecture, SIZES | OWN.get(model_type, {}))
    return found | MENDED


def outcomes(family: Family) -> Iterator[tuple[str, str]]:
    """What comes of each parallelism: a word, and the reason."""
    try:
        if family.elements() > ELEMENTS:
            yield "not built", "a tiny config needs sizes of its own"
            return
        catalog = family.catalog()
    except Exception as error:
        yield "not built", _line(error)
        return
    experts = any(".experts." in name or "moe." in name for name in catalog)
    for tp, ep in ((1, False), (2, False), (2, True))[: 3 if experts else 2]:
        yield _outcome(ranks(family, tp, ep), blank(catalog))


def _outcome(engine: Ranks, checkpoint: Checkpoint) -> tuple[str, str]:
    try:
        for rank in range(engine.ranks):
            engine.load(rank, engine.build(rank), checkpoint.version(0).items())
    except Exception as error:
        return "not built", _line(error)
    try:
        conform(engine, checkpoint, seed=engine.ranks)
    except Nonconformity as wrong:
        return "WRONG", _line(wrong)
    except wc.WeightcastError as refused:
        return "refused", _line(refused)
    return "verified", ""


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:200]


def main(names: list[str]) -> int:
    claim_experts()
    disable_progress_bar()
    logging.disable(logging.WARNING)
    counts: dict[str, int] = {}
    for name, family in families().items():
        if names and name not in names:
            continue
        listed = list(outcomes(family))
        words = [word for word, _ in listed]
        worst = max(words, key=["verified", "not built", "refused", "WRONG"].index)
        counts[worst] = counts.get(worst, 0) + 1
        why = next((why for word, why in listed if word == worst), "")
        print(f"{name:28} {' | '.join(words):40} {why}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    return int("WRONG" in counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
