"""The adapter conforms on real SGLang model classes, as rank groups of every family."""

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from tests_vllm.configs import FAMILIES, MOE
from tests_vllm.ranks import Ranks, blank
from tests_vllm.rules import Rules
from weightcast.adapters import sglang
from weightcast.testing import conform

from .configs import config
from .engine import build

CASES = [(family, tp, ep) for family in FAMILIES for tp, ep in ((1, 1), (2, 2 if family in MOE else 1))]

#: What multi-head latent attention derives from its parameters.
DERIVED = ("w_kc", "w_vc")


class Derived(Ranks):
    """With what the models derive from their parameters."""

    def state(self, rank: int, model: nn.Module) -> dict[str, torch.Tensor]:
        derived = {
            f"{name}.{which}": getattr(module, which)
            for name, module in model.named_modules()
            for which in DERIVED
            if getattr(module, which, None) is not None
        }
        return super().state(rank, model) | derived


@pytest.mark.parametrize(("family", "tp", "ep"), CASES)
def test_sglang_conforms(family: str, tp: int, ep: int, tmp_path: Path) -> None:
    drawn = config(family, random.Random(f"conformance {family}"))
    catalog = Rules(drawn, tmp_path).catalog()
    ranks = Derived(tp, lambda rank: build(drawn, tp=tp, rank=rank, ep=ep), sglang.read)
    conform(ranks, blank(catalog), seed=tp)


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
