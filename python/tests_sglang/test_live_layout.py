"""The layout read off a live SGLang model is what the rules say, for whatever config is drawn."""

import random
from pathlib import Path

import pytest

from tests_vllm.configs import FAMILIES
from tests_vllm.rules import Rules, agree
from weightcast.adapters import sglang

from .configs import config, parallelism
from .engine import build

SEEDS = 12


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_live_equals_rules(family: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{family} {seed}")
    drawn = config(family, draw)
    spread = parallelism(family, drawn, draw)
    rules = Rules(drawn, tmp_path)
    catalog = rules.catalog()
    live = sglang.read(build(drawn, **spread.arguments), catalog)
    agree(live, rules, catalog, spread.spec, spread.rank)
