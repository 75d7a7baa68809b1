"""The layout read off a live vLLM model is what the rules say, for whatever config is drawn."""

import random
from pathlib import Path

import pytest

from weightcast.adapters import vllm

from .configs import FAMILIES, config, parallelism
from .engine import build
from .rules import Rules, agree

SEEDS = 12


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_live_equals_rules(family: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{family} {seed}")
    drawn, spread = config(family, draw), parallelism(family, draw)
    rules = Rules(drawn, tmp_path)
    catalog = rules.catalog()
    model = build(
        drawn, tp=spread.tp, rank=spread.rank, ep=spread.ep, placement=spread.placement
    )
    live = vllm.read(model, catalog)
    agree(live, rules, catalog, spread.spec, spread.rank)
