"""Sampling: from logits to tokens, and the log-probability each was drawn with."""

from typing import NamedTuple

import torch
from torch import Tensor


class Sampled(NamedTuple):
    """Answers to a batch of prompts, `[rows, new tokens]` each.

    `logprobs` are those of the distribution sampled from (temperature included): the behaviour
    log-probabilities a trainer needs for its importance weights. Both are 0 after a stop token.
    """

    tokens: Tensor
    logprobs: Tensor


def sample(
    logits: Tensor, temperature: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """One token per row of `[rows, vocabulary]`, and its log-probability. Temperature 0 is greedy.

    Equal logits and equally seeded generators give equal tokens, which keeps the ranks of a
    tensor-parallel group in step without another message.
    """
    logprobs = (logits.float() / (temperature or 1.0)).log_softmax(dim=-1)
    if temperature == 0:
        tokens = logprobs.argmax(dim=-1)
    else:
        tokens = torch.multinomial(logprobs.exp(), 1, generator=generator).squeeze(1)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)
