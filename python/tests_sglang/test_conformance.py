"""The adapter conforms on real SGLang model classes, as rank groups of every family."""

import random
from pathlib import Path

import pytest
import torch
from tests_vllm.configs import FAMILIES, MOE
from tests_vllm.rules import Rules
from weightcast.adapters import sglang
from weightcast.adapters.recorder import DTYPES
from weightcast.testing import Checkpoint, conform

from .configs import config
from .engine import build

CASES = [(family, tp, ep) for family in FAMILIES for tp, ep in ((1, 1), (2, 2 if family in MOE else 1))]

#: What multi-head latent attention derives from its parameters.
DERIVED = ("w_kc", "w_vc")


class Ranks:
    """The ranks of one engine, one after the other in this process."""

    def __init__(self, drawn: dict, tp: int, ep: int) -> None:
        self.ranks = tp
        self._drawn, self._ep = drawn, ep

    def build(self, rank):
        model = build(self._drawn, tp=self.ranks, rank=rank, ep=self._ep)
        for parameter in model.parameters():
            parameter.data.fill_(7)
        # An engine that runs has derived its state.
        getattr(model, "post_load_weights", lambda: None)()
        return model

    def read(self, rank, model, catalog):
        return sglang.read(model, catalog)

    def load(self, rank, model, tensors):
        model.load_weights(tensors)

    def state(self, rank, model):
        derived = {
            f"{name}.{which}": getattr(module, which)
            for name, module in model.named_modules()
            for which in DERIVED
            if getattr(module, which, None) is not None
        }
        return dict(model.named_parameters()) | derived


@pytest.mark.parametrize(("family", "tp", "ep"), CASES)
def test_sglang_conforms(family: str, tp: int, ep: int, tmp_path: Path) -> None:
    drawn = config(family, random.Random(f"conformance {family}"))
    catalog = Rules(drawn, tmp_path).catalog()
    tensors = {
        name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        for name, entry in catalog.items()
    }
    conform(Ranks(drawn, tp, ep), Checkpoint(tensors), seed=tp)


def test_latent_attention_derives_anew(tmp_path: Path) -> None:
    """The state that is compared above is there at all."""
    drawn = config("deepseek_v3", random.Random(0))
    catalog = Rules(drawn, tmp_path).catalog()
    model = build(drawn, tp=1, rank=0)
    live = sglang.read(model, catalog)
    assert live.derived == {"": "DeepseekV3ForCausalLM.post_load_weights"}
    for parameter in model.parameters():
        parameter.data.fill_(3)
    live.finish()
    derived = [getattr(layer.self_attn, which) for layer in model.model.layers for which in DERIVED]
    assert derived and all(torch.equal(w, torch.full_like(w, 3)) for w in derived)
