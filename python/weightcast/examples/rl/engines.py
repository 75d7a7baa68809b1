"""What a rollout asks of its engine, whichever that is."""

from typing import Protocol

import torch
from torch import Tensor

import weightcast as wc

from ..rl_loop.sampling import Sampled
from .settings import Post


class RolloutEngine(Protocol):
    """One rank of an engine. All ranks make the same calls."""

    def layout(self, handle: wc.Handle) -> wc.Layout:
        """What this rank's memory holds; the handle knows what is published."""

    def installed(self) -> None:
        """The memory has changed: what was computed from the former version does not count any more."""

    def answer(self, prompts: Tensor, length: int, temperature: float, draw: torch.Generator) -> Sampled:
        """Answers `length` tokens long, with the log-probabilities they were drawn with."""


def engine_of(post: Post) -> RolloutEngine:
    """The engine that the settings ask for; its weights are to come."""
    if post.settings.engine == "vllm":
        from .vllm import VLLM

        return VLLM(post)
    from .small import Small

    return Small(post)
