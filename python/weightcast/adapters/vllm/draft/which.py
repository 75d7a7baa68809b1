"""Whether an engine has a draft that updates bring with them, and where its tensors are published."""

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

from .... import _core
from ...engine import Settings
from ...engine.settings import STALE
from ...naming.rename import Rename

#: vLLM's ways of guessing whose models are updated, and those that have no model.
UPDATED = ("draft_model", "eagle", "eagle3", "mtp")
WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix")
#: What published names of a draft with a checkpoint of its own begin with, if nothing else is said.
PREFIX = "draft."


@dataclass(frozen=True)
class Draft:
    """The draft of an engine."""

    model: nn.Module
    #: The engine's, with the draft's model config; None before vLLM has processed the weights.
    vllm_config: Any
    #: What published names of the draft begin with; None for heads that the model's own checkpoint has.
    prefix: str | None

    def __str__(self) -> str:
        return f"the draft ({type(self.model).__name__})"

    def known_name(self, published: str, rename: Rename | None) -> str | None:
        """The name of a published tensor in the checkpoint of the draft, if it may have it."""
        found = published if rename is None else rename(published)
        if found is None or self.prefix is None:
            return found
        return found.removeprefix(self.prefix) if found.startswith(self.prefix) else None


def draft_of(vllm_config: Any, model: nn.Module | None, settings: Settings) -> Draft | None:
    """The draft that updates bring with them. None if the engine has none, or `settings` leave it as it was
    loaded. Raises `Misuse` for one that cannot be updated. `model` is the draft of vLLM's worker."""
    speculative = vllm_config.speculative_config
    if speculative is None or settings.draft == STALE or speculative.method in WITHOUT_MODEL:
        return None
    why = _not_updated(vllm_config, model)
    if why is not None or model is None:
        raise _core.Misuse(
            f"this engine guesses tokens with a draft model ({speculative.method}), which updates would "
            f"leave as it was loaded: {why}; accept that with draft='stale' in init_info, or start the "
            "engine without it"
        )
    config = copy.copy(vllm_config)
    config.model_config = speculative.draft_model_config
    return Draft(model, config, prefix_of(vllm_config, settings))


def prefix_of(vllm_config: Any, settings: Settings) -> str | None:
    """What published names of the engine's draft begin with; None if they are those of the model's own
    checkpoint, from which heads (MTP) were loaded."""
    own, speculative = vllm_config.model_config, vllm_config.speculative_config
    places = (own.model, getattr(own, "model_weights", None))
    inside = speculative.method == "mtp" and speculative.draft_model_config.model in places
    return settings.draft or (None if inside else PREFIX)


def _not_updated(vllm_config: Any, model: nn.Module | None) -> str | None:
    speculative, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    if speculative.method not in UPDATED:
        return f"updates bring drafts of {', '.join(UPDATED)} alone"
    if parallel.pipeline_parallel_size > 1:
        return "only the last pipeline stage has it"
    if model is None:
        return "this vLLM does not say which model that is"
    if getattr(parallel, "enable_eplb", False):
        return "the engine moves experts between its workers (enable_eplb)"
    if speculative.parallel_drafting and speculative.method != "draft_model":
        return "parallel_drafting keeps outside the model what it has made of a mask"
    return None
