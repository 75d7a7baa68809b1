"""The adapter conforms on real vLLM model classes, as rank groups of every family."""

import random
from pathlib import Path

import pytest

from weightcast.adapters import vllm
from weightcast.testing import conform

from .configs import FAMILIES, MOE, config
from .engine import build
from .ranks import Ranks, blank
from .rules import Rules

CASES = [(family, tp, ep) for family in FAMILIES for tp, ep in ((1, False), (2, family in MOE))]


def ranks(drawn: dict, tp: int, ep: bool) -> Ranks:
    return Ranks(tp, lambda rank: build(drawn, tp=tp, rank=rank, ep=ep), vllm.read)


@pytest.mark.parametrize(("family", "tp", "ep"), CASES)
def test_vllm_conforms(family: str, tp: int, ep: bool, tmp_path: Path) -> None:
    drawn = config(family, random.Random(f"conformance {family} {tp}"))
    catalog = Rules(drawn, tmp_path).catalog()
    conform(ranks(drawn, tp, ep), blank(catalog), seed=tp)
