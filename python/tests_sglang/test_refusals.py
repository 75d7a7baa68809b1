"""What cannot be read off a live SGLang model is refused by name."""

import random
from pathlib import Path

import pytest

import weightcast as wc
from tests_vllm.rules import Rules
from weightcast.adapters import sglang

from .configs import config
from .engine import build


def test_packed_weights_are_refused(tmp_path: Path) -> None:
    drawn = config("qwen3", random.Random(0))
    model = build(drawn, tp=1, rank=0)
    model.model.layers[0].mlp.down_proj.use_intel_amx_backend = True
    with pytest.raises(wc.Misuse, match=r"model\.layers\.0\.mlp\.down_proj: packed for AMX"):
        sglang.read(model, Rules(drawn, tmp_path).catalog())


def test_a_head_that_nothing_fills_is_refused(tmp_path: Path) -> None:
    """The class has a head of its own, whatever the config says of tied ones: it would stay random."""
    drawn = config("qwen3_moe", random.Random(0)) | {"tie_word_embeddings": True}
    catalog = Rules(drawn, tmp_path).catalog()
    assert "lm_head.weight" not in catalog
    with pytest.raises(wc.LayoutMismatch, match=r"lm_head\.weight \(0 of \d+ elements are filled\)"):
        sglang.read(build(drawn, tp=1, rank=0), catalog)
