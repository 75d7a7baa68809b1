"""Families whose loaders do more than copy: what is put in place by the layout is, to the bit, what the
class's own loader makes of the same checkpoint."""

from typing import Any

import pytest
import torch
from torch import nn

import weightcast as wc
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog, Entry
from weightcast.adapters.live import LiveLayout
from weightcast.adapters.live.through_loader import ThroughLoader
from weightcast.testing import conform

from .cpu import claim_experts
from .engine import build, processed, spread
from .families import MENDED, Family
from .ranks import Ranks, blank

CASES = [
    (name, tp, ep)
    for name, family in MENDED.items()
    for tp, ep in ((1, False), (2, False), (2, True))
    if family.experts or not ep
]


class Loading(Ranks):
    """Ranks whose loaders ask which rank they are. Buffers have to be right as well: some come from the
    checkpoint, and some are views."""

    def read(self, rank: int, model: nn.Module, catalog: Catalog) -> LiveLayout:
        spread(self.ranks, 1, rank)
        live = super().read(rank, model, catalog)
        finish = live.finish
        live.finish = lambda: (spread(self.ranks, 1, rank), finish())
        return live

    def load(self, rank: int, model: nn.Module, tensors: Any) -> None:
        spread(self.ranks, 1, rank)
        super().load(rank, model, tensors)

    def state(self, rank: int, model: nn.Module) -> dict[str, torch.Tensor]:
        return self.everything(model)

    @staticmethod
    def everything(model: nn.Module) -> dict[str, torch.Tensor]:
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def ranks(family: Family, tp: int, ep: bool) -> Ranks:
    drawn = family.config()
    return Loading(tp, lambda rank: build(drawn, tp=tp, rank=rank, ep=ep), vllm.read)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    claim_experts(monkeypatch.setattr)


#: In BF16 the CPU decides whether vLLM packs linear weights (it needs AVX-512), in FP32 any CPU does.
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", ["falcon_h1", "mamba2", "whisper", "apertus"])
def test_an_engine_has_after_an_update_what_it_would_have_loaded(name: str, dtype: str) -> None:
    family = MENDED[name]
    catalog = family.catalog()
    one, other = (blank(catalog).version(number) for number in (1, 2))
    model, whole = processed(family.config(), one, dtype=dtype)
    live = vllm.read(model, catalog, vllm_config=whole)
    assert type(live) is (ThroughLoader if packed(model) else LiveLayout)
    assert packed(model) or dtype == "bfloat16"
    publish(other, live)
    got, want = (state(engine) for engine in (model, processed(family.config(), other, dtype=dtype)[0]))
    assert got.keys() == want.keys()
    assert not [n for n, t in want.items() if not torch.equal(got[n], t)]


def packed(model: nn.Module) -> bool:
    """vLLM empties the parameters that it has packed."""
    return any(p.numel() == 0 for p in model.parameters())


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    """What an engine computes with. A packed layer shows its weights by what it makes of each unit vector."""
    packs = {
        f"{name} of unit vectors": layer.cpu_linear(
            torch.eye(layer.input_size_per_partition, dtype=layer.params_dtype), layer.weight, None
        )
        for name, layer in model.named_modules()
        if hasattr(layer, "cpu_linear") and hasattr(layer, "input_size_per_partition")
    }
    return Loading.everything(model) | packs


def publish(tensors: dict[str, torch.Tensor], live: LiveLayout) -> None:
    """One update of an engine."""
    listed = wc.Layout()
    for tensor, values in tensors.items():
        listed.add(values, tensor)
    with (
        wc.serve() as server,
        wc.open("model", wc.Replica("trainer"), role="trainer", server=server.address) as trainer,
        wc.open("model", wc.Replica("rollout"), server=server.address) as rollout,
    ):
        trainer.register(listed)
        rollout.register(live.layout(stage=True))
        with trainer.published(version=1):
            assert rollout.update().changed
            live.finish()


def test_a_head_that_the_loader_makes_is_refused_and_undone() -> None:
    family = MENDED["llama, classes"]
    model = build(family.config(), tp=1, rank=0)
    with pytest.raises(wc.Misuse, match=r"score\.bias: the loader makes or replaces this part of the model"):
        vllm.read(model, family.catalog() | {"score.bias": Entry((2,), "BF16")})
    assert model.score.bias is None
    assert vllm.read(model, family.catalog()).records


@pytest.mark.parametrize(("name", "tp", "ep"), CASES)
def test_family_conforms(name: str, tp: int, ep: bool) -> None:
    family = MENDED[name]
    conform(ranks(family, tp, ep), blank(family.catalog()), seed=tp)
