"""State that vLLM derives from parameters is made anew after an update, where it lies."""

import random
from pathlib import Path

import torch

from weightcast.adapters import vllm
from weightcast.adapters.live import LiveLayout
from weightcast.adapters.vllm import processing

from .configs import config
from .engine import build_with_config
from .rules import Rules
from .trainer import checkpoint


def projections(model: torch.nn.Module) -> list[torch.Tensor]:
    """What MLA makes of `kv_b_proj`."""
    return [t for layer in model.model.layers for t in matrices(layer.self_attn.mla_attn.mla_attn)]


def matrices(attention: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    return attention.W_UV, attention.W_UK_T


def processed(drawn: dict, values: dict) -> tuple[torch.nn.Module, object]:
    """A model after loading, as on a device without packed CPU kernels."""
    model, whole = build_with_config(drawn, tp=1, rank=0)
    model.load_weights(values.items())
    for layer in model.model.layers:
        attention = layer.self_attn.mla_attn.mla_attn
        attention.is_amx_bmm_enabled = False
        attention.process_weights_after_loading(torch.bfloat16)
        # Views of `kv_b_proj` here; copies where that is quantised.
        for name in ("W_UV", "W_UK_T"):
            copy = getattr(attention, name).detach().clone()
            setattr(attention, name, torch.nn.Parameter(copy, requires_grad=False))
    return model, whole


def test_mla_projections_follow_an_update(tmp_path: Path) -> None:
    drawn = config("deepseek_v3", random.Random("derived"))
    drawn["first_k_dense_replace"] = drawn["num_hidden_layers"]  # experts are another story
    catalog = Rules(drawn, tmp_path).catalog()
    model, whole = processed(drawn, checkpoint(catalog, 1))
    live = vllm.read(model, catalog, vllm_config=whole)
    assert type(live) is LiveLayout
    assert len(live.derived) == drawn["num_hidden_layers"]
    assert sum("after loading" in why for why in live.unsourced.values()) == 2 * len(live.derived)
    before = [t.data_ptr() for t in projections(model)]
    want = projections(processed(drawn, checkpoint(catalog, 2))[0])
    model.load_weights(checkpoint(catalog, 2).items())  # in place, as an update writes
    assert not any(torch.equal(a, b) for a, b in zip(projections(model), want, strict=True))
    live.finish()
    assert all(torch.equal(a, b) for a, b in zip(projections(model), want, strict=True))
    assert before == [t.data_ptr() for t in projections(model)]


class Deriving(torch.nn.Module):
    """Makes a new tensor of its weight whenever it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
        self.doubled = torch.zeros(4)

    def process_weights_after_loading(self) -> None:
        self.doubled = 2 * self.weight


def test_what_is_made_anew_lies_where_a_graph_reads_it() -> None:
    """Also after the second update: a graph has kept the address, and the module still has that memory."""
    module = Deriving()
    read = module.doubled
    for value in (1.0, 2.0):
        module.weight.fill_(value)
        before = processing._tensors(module)
        module.process_weights_after_loading()
        processing._keep_memory(module, before)
        assert read.tolist() == [2 * value] * 4
        assert module.doubled is read
