"""A draft at the start of an engine that has no checkpoint: its tensors come with those of the model."""

import glob
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .... import _core
from ...catalog import catalog_of
from ...engine import Settings
from ...engine.settings import STALE
from .reading import read_draft
from .which import UPDATED, Draft, prefix_of

#: Where nothing is published for these, vLLM puts the model's own in their place afterwards; not in a draft
#: that is a model by itself.
SHARED = ("*embed_tokens.weight", "*lm_head.weight", "*shared_head.head.weight")


def told_beside_draft(vllm_config: Any, settings: Settings) -> dict[str, Any] | None:
    """What `read` is told of a model that leaves something to a draft; None if the engine has no draft."""
    speculative = vllm_config.speculative_config
    if speculative is None or settings.draft == STALE or speculative.method not in UPDATED:
        return None
    prefix = prefix_of(vllm_config, settings)
    if prefix is None:
        told = settings.reading()
        return {**told, "unused": {**told["unused"], "*": "the draft's, if it is not the model's"}}
    unused = {**settings.unused, f"{glob.escape(prefix)}*": "the draft's"}
    return replace(settings, unused=unused).reading()


def load_draft(
    model: nn.Module, vllm_config: Any, settings: Settings, came: Mapping[str, torch.Tensor]
) -> None:
    """Loads a draft with the published tensors that came with the model and that the model left."""
    if settings.draft == STALE:
        raise _core.Misuse(
            "draft='stale' leaves the draft as it was loaded, and here it is to be loaded; give it a load "
            "format of its own, with draft_load_config in the speculative config"
        )
    draft, told = Draft(model, None, prefix_of(vllm_config, settings)), settings.reading()
    rename = told["rename"]
    if vllm_config.speculative_config.method != "draft_model":
        told["unsourced"] = {**told["unsourced"], **dict.fromkeys(SHARED, "the model's own")}
    read_draft(draft, catalog_of({name: (t.shape, t.dtype) for name, t in came.items()}), **told)
    known = {name: draft.known_name(name, rename) for name in came}
    model.load_weights((known[name], tensor) for name, tensor in came.items() if known[name] is not None)
