"""The task: sort a few digits. Anyone can verify an answer, nobody has to label one.

A prompt is `length` digits and a separator token; the right answer is the same digits in order.
Digits are the token ids 0 to `base - 1`, the separator is token `base`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SortTask:
    """Sort `length` digits below `base`."""

    base: int
    length: int

    @property
    def prompt_tokens(self) -> int:
        """Tokens in a prompt: the digits and the separator."""
        return self.length + 1

    def prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` random prompts, `[count, length + 1]`."""
        digits = torch.randint(self.base, (count, self.length), generator=generator)
        separator = torch.full((count, 1), self.base)
        return torch.cat([digits, separator], dim=1)

    def reward(self, prompts: Tensor, answers: Tensor) -> Tensor:
        """The fraction of right tokens in each answer, `[rows]`, from 0 to 1."""
        right = prompts[:, : self.length].sort(dim=1).values
        return (answers == right).float().mean(dim=1)
