"""The small engine of `rl_loop`, for Qwen2 and GPT-2, over any number of tensor-parallel ranks."""

from typing import Any

import torch
from torch import Tensor

import weightcast as wc

from ..rl_loop.config import ModelConfig
from ..rl_loop.engine import Decoder, TPEngine
from ..rl_loop.sampling import Sampled
from .gpt2 import GPT2Engine, GPT2Sizes
from .models import config_of
from .settings import Post


class Small:
    """A rank of the small engine, as a rollout's engine."""

    def __init__(self, post: Post):
        dtype = getattr(torch, post.settings.dtype)
        self.decoder = decoder_of(config_of(post.settings), post.rank, post.size, dtype)

    def layout(self, handle: wc.Handle) -> wc.Layout:
        """What this rank's memory holds, fused and cut as the engine has it."""
        return self.decoder.layout()

    def installed(self) -> None:
        """Nothing: a cache lives as long as one call."""

    def answer(self, prompts: Tensor, length: int, temperature: float, draw: torch.Generator) -> Sampled:
        """Answers, the same on all ranks."""
        answered: Sampled = self.decoder.generate(prompts, length, temperature=temperature, generator=draw)
        return answered


def decoder_of(config: Any, rank: int, size: int, dtype: torch.dtype) -> Decoder:
    """The engine for a configuration of `transformers`."""
    if config.model_type == "gpt2":
        return GPT2Engine(GPT2Sizes.from_transformers(config), rank, size, dtype=dtype)
    return TPEngine(ModelConfig.from_transformers(config), rank, size, dtype=dtype)
