"""Layouts of live vLLM models, on one tensor- and expert-parallel rank each.

    live = weightcast.adapters.vllm.read(engine_model, catalog)
    handle.register(live.layout(stage=True))
    if handle.update(deadline=30).changed:
        live.finish()
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from .. import layout as layouts
from .catalog import catalog_of
from .live import LiveLayout
from .read import read as read_live

#: Parameters for which checkpoints may have no tensor. vLLM sets them itself.
UNSOURCED = {
    f"*.attn.{which}_scale": "attention scales that the engine sets to 1" for which in "qkv"
} | {"*.attn.prob_scale": "attention scales that the engine sets to 1"}


def layout(model: nn.Module, catalog: Any, **decisions: Mapping[str, str]) -> layouts.Layout:
    """The layout of a vLLM model of which every parameter holds published bytes.

    As `read(...).layout()`; where a parameter converts (a router in FP32, say) it raises `Misuse`
    and lists them: use `read` there.
    """
    return read(model, catalog, **decisions).layout()


def read(
    model: nn.Module,
    catalog: Any,
    *,
    unused: Mapping[str, str] | None = None,
    unsourced: Mapping[str, str] | None = None,
) -> LiveLayout:
    """The layout of a vLLM model's parameters, as its own `load_weights` fills them here.

    `catalog` says what is published, in any form that `weightcast.adapters.catalog.catalog_of` takes. Nothing
    is loaded, and the parameters may lie on any device. Every name that is left over is a decision:
    `unused` maps patterns of published names that this model shall not take to the reason, and
    `unsourced` those of parameters that nothing published shall fill. Some are made by default, each
    with a line in the log: draft layers, tied heads, rotary tables, attention scales.
    """
    listed = catalog_of(catalog)
    parameters = dict(model.named_parameters())
    return read_live(
        parameters,
        model.load_weights,
        listed,
        memory=_buffers(model, parameters),
        unused={**(unused or {}), **_unused(model)},
        unsourced={**(unsourced or {}), **UNSOURCED},
    )


def _buffers(model: nn.Module, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: b for name, b in model.named_buffers() if name not in parameters}


def _unused(model: nn.Module) -> dict[str, str]:
    """What vLLM's models leave out on purpose."""
    reasons = {"*rotary_emb.inv_freq": "rotary tables, which the engine computes"}
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", config)
    if getattr(config, "tie_word_embeddings", False):
        reasons["lm_head.weight"] = "the head is tied to the embedding"
    layers = getattr(config, "num_hidden_layers", None)
    for draft in range(getattr(config, "num_nextn_predict_layers", None) or 0):
        if layers is not None:
            reasons[f"model.layers.{layers + draft}.*"] = "a draft layer, which another model loads"
    return reasons
