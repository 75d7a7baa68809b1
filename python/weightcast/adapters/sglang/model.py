"""Reads the layout of an SGLang model off its own `load_weights`."""

import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from ... import _core
from ..catalog import catalog_of
from ..live.layout import LiveLayout
from ..live.read import examine
from ..naming.decisions import left_out
from ..naming.rename import Rename

#: Methods of SGLang's layers that leave parameters as they were loaded, unless packed for AMX.
IN_PLACE = {
    "UnquantizedLinearMethod",
    "UnquantizedEmbeddingMethod",
    "UnquantizedFusedMoEMethod",
}

#: Parameters for which checkpoints may have no tensor. SGLang sets them itself.
UNSOURCED = {
    f"*.attn*.{which}_scale": "a scale of the cache, which the engine sets to 1" for which in ("k", "v")
}


def read(
    model: nn.Module,
    catalog: Any,
    *,
    unused: Mapping[str, str] | None = None,
    unsourced: Mapping[str, str] | None = None,
    rename: Rename | None = None,
    as_loaded: bool = False,
) -> LiveLayout:
    """The layout of an SGLang model's parameters, as its own `load_weights` fills them here.

    `catalog`, `unused`, `unsourced` and `rename` are those of `weightcast.adapters.vllm.read`.
    Nothing is loaded, and the parameters may lie on any device. What the model derives from its
    parameters (`w_kc` and `w_vc` of multi-head latent attention; `derived` of the result) is redone by
    `finish()`, by its own `post_load_weights`.

    Layers whose quantisation may rearrange parameters after loading, and weights packed for AMX,
    raise `Misuse`: SGLang has no way back to the form that is loaded. `as_loaded` says that none of
    that has happened yet (no `process_weights_after_loading` has run), so that FP8 models can be read;
    what has to follow an update is then the caller's.
    """
    moved = rearranged(model)
    if moved and not as_loaded:
        listed = "\n".join(f"  {name or 'the model'}: {why}" for name, why in moved.items())
        raise _core.Misuse(
            f"{len(moved)} layers may not be as they were loaded:\n{listed}\n"
            "update them through the engine's own loader, or pass as_loaded=True if they were just loaded"
        )
    parameters = dict(model.named_parameters())
    reading = examine(
        parameters,
        model.load_weights,
        catalog_of(catalog),
        memory={n: b for n, b in model.named_buffers() if n not in parameters},
        unused={**(unused or {}), **left_out(model)},
        unsourced={**(unsourced or {}), **UNSOURCED},
        rename=rename,
    )
    redo = getattr(model, "post_load_weights", None)
    derived = {} if redo is None else {"": f"{type(model).__name__}.post_load_weights"}
    return LiveLayout(reading, model=model, derived=derived, redo=redo)


def _experts_moved(module: nn.Module) -> str | None:
    """How SGLang lays out experts anew after loading, which it does again whenever a session ends."""
    method = module.quant_method
    if getattr(method, "use_flashinfer_trtllm_moe", False):
        return "experts packed for FlashInfer's TRT-LLM kernels"
    if getattr(module, "w13_swiglu_interleaved", False) or _on("SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED"):
        return "experts whose gate and up projections are interleaved"
    return "experts shuffled for AITER" if _on("SGLANG_USE_AITER") else None


def _on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


def rearranged(model: nn.Module) -> dict[str, str]:
    """Modules whose parameters are not as they were loaded, or may not be, and why."""
    found = {}
    for name, module in model.named_modules():
        method = type(getattr(module, "quant_method", None)).__name__
        if getattr(module, "use_intel_amx_backend", False):
            found[name] = "packed for AMX"
        elif method == "UnquantizedFusedMoEMethod" and (how := _experts_moved(module)):
            found[name] = how
        elif method not in IN_PLACE and getattr(module, "quant_method", None) is not None:
            found[name] = method
    return found
