"""The layout read off a live SGLang model is what the rules say, for whatever config is drawn."""

import random
from pathlib import Path

import pytest
from tests_vllm.configs import FAMILIES
from tests_vllm.rules import Rules, laid
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
    by_rule = laid(rules.records(spread.spec, spread.rank), catalog)
    by_loader = laid([record.as_json() for record in live.records], catalog)
    assert by_loader == by_rule, (drawn, spread)
    # Where the engine's type is another one, the copy converts, and it says so.
    casts = {c.parameter for c in live.conversions}
    published = {r.name for r in live.records if any(catalog[p.tensor].dtype != r.dtype for p in r.pieces)}
    assert casts == published
