"""Reads the layout of a vLLM model off its own `load_weights`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from ... import _core
from ... import layout as layouts
from ..catalog import Catalog, catalog_of
from ..live.layout import LiveLayout
from ..live.read import examine
from ..live.reading import Reading
from ..live.through_loader import ThroughLoader
from ..naming.decisions import left_out
from ..naming.rename import Rename
from ..recording.kept import keeping
from .experts import follow, placed
from .processing import derived, load_form, made_later, rearranged, redo, reload

#: Parameters for which checkpoints may have no tensor. vLLM sets them itself.
UNSOURCED = {
    f"*.attn.{which}_scale": "an attention scale, which the engine sets to 1"
    for which in ("q", "k", "v", "prob")
}


def layout(model: nn.Module, catalog: Any, **options: Any) -> layouts.Layout:
    """The layout of a vLLM model of which every parameter holds published bytes.

    As `read(...).layout()`. Where a parameter converts (a router in FP32, say), or the engine has
    rearranged its parameters, it raises `Misuse` and says which: use `read` there.
    """
    return read(model, catalog, **options).layout()


def read(
    model: nn.Module,
    catalog: Any,
    *,
    vllm_config: Any = None,
    unused: Mapping[str, str] | None = None,
    unsourced: Mapping[str, str] | None = None,
    rename: Rename | None = None,
) -> LiveLayout:
    """The layout of a vLLM model's parameters, as its own `load_weights` fills them here.

    `catalog` says what is published, in any form that `weightcast.adapters.catalog.catalog_of`
    takes. Nothing is loaded, and the parameters may lie on any device. Every name that is left over
    is a decision: `unused` maps patterns of published names that this model shall not take to the
    reason, and `unsourced` those of parameters that nothing published shall fill. Some are made by
    default, each with a line in the log: draft layers, tied heads, rotary tables, attention scales.
    `rename` maps published names to those of the model's Hugging Face checkpoint, which its loader
    knows, or to None to leave one out.

    For the model of an engine that runs give its `vllm_config`. What the engine derives from its
    parameters (`derived` of the result) is then redone by `finish()`, through vLLM's own hooks; if
    it has rearranged parameters, or may have, updates go through its loader (see `ThroughLoader`).
    Of an engine that moves experts (EPLB) the layout is that of where they are now: `stale()` of the result
    says whether they have moved since.
    """
    listed = catalog_of(catalog)
    decisions: dict[str, Any] = {
        "rename": rename,
        "unused": {**(unused or {}), **left_out(model)},
        "unsourced": {**(unsourced or {}), **UNSOURCED, **made_later(model)},
    }
    moved = rearranged(model) if vllm_config is not None else {}
    experts = placed(model)
    if moved and experts:
        raise _core.Misuse(
            "this engine has rearranged its parameters after loading, so updates go through its loader, "
            "which knows nothing of experts that have moved (enable_eplb); start it without EPLB"
        )
    if moved:
        names = set(dict(model.named_parameters()))
        with load_form(model):
            reading = _examine(model, names, listed, decisions)
        reloaded = replace(reading, load=reload(model, vllm_config))
        return ThroughLoader(reloaded, listed, derived=moved)
    reading = _examine(model, None, listed, decisions)
    follow(reading, model, listed, experts)
    again = None if vllm_config is None else redo(model, vllm_config)
    return LiveLayout(
        reading,
        model=model,
        derived=derived(model),
        redo=again,
        stale=lambda: placed(model) != experts,
    )


def _examine(
    model: nn.Module, names: set[str] | None, catalog: Catalog, decisions: dict[str, Any]
) -> Reading:
    parameters = {n: p for n, p in model.named_parameters() if names is None or n in names}
    buffers = {n: b for n, b in model.named_buffers() if n not in parameters}
    return examine(parameters, keeping(model), catalog, memory=buffers, **decisions)
