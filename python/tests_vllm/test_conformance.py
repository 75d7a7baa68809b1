"""The adapter conforms on real vLLM model classes, as rank groups of every family."""

import random
from pathlib import Path

import pytest
import torch
from weightcast.adapters import vllm
from weightcast.adapters.recorder import DTYPES
from weightcast.testing import Checkpoint, conform

from .configs import FAMILIES, MOE, config
from .engine import build
from .rules import Rules

CASES = [(family, tp, ep) for family in FAMILIES for tp, ep in ((1, False), (2, family in MOE))]


class Ranks:
    """The ranks of one engine, one after the other in this process."""

    def __init__(self, drawn: dict, tp: int, ep: bool) -> None:
        self.ranks = tp
        self._drawn, self._ep = drawn, ep

    def build(self, rank):
        model = build(self._drawn, tp=self.ranks, rank=rank, ep=self._ep)
        for parameter in model.parameters():
            parameter.data.fill_(7)
        return model

    def read(self, rank, model, catalog):
        return vllm.read(model, catalog)

    def load(self, rank, model, tensors):
        model.load_weights(tensors)

    def state(self, rank, model):
        return dict(model.named_parameters())


@pytest.mark.parametrize(("family", "tp", "ep"), CASES)
def test_vllm_conforms(family: str, tp: int, ep: bool, tmp_path: Path) -> None:
    drawn = config(family, random.Random(f"conformance {family} {tp}"))
    catalog = Rules(drawn, tmp_path).catalog()
    tensors = {
        name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        for name, entry in catalog.items()
    }
    conform(Ranks(drawn, tp, ep), Checkpoint(tensors), seed=tp)
