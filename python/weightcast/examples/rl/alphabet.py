"""The task's digits as tokens of a model.

Of a tiny model token i is digit i. A checkpoint's tokenizer says which tokens its digits are; without
a tokenizer the first tokens serve.
"""

from pathlib import Path

import torch
from torch import Tensor

from .settings import TINY, LoopSettings

UNKNOWN = -1
"""What a token is that is no digit."""
SEPARATOR = "="
"""What stands between a prompt and its answer."""


class Alphabet:
    """`ids` are the tokens of the digits 0, 1, 2 and so on, and of the separator."""

    def __init__(self, ids: list[int]):
        if len(set(ids)) < len(ids):
            raise ValueError(f"two digits are the same token among {ids}; choose a smaller --base")
        self.ids = torch.tensor(ids)

    def encode(self, digits: Tensor) -> Tensor:
        """The tokens of digits."""
        return self.ids[digits]

    def decode(self, tokens: Tensor) -> Tensor:
        """The digits of tokens; `UNKNOWN` for others."""
        equal = tokens[..., None] == self.ids
        return torch.where(equal.any(-1), equal.int().argmax(-1), UNKNOWN)


def alphabet_of(settings: LoopSettings) -> Alphabet:
    """How the model of these settings writes digits. Raises `ValueError` if a digit is no single token."""
    if settings.model in TINY or not any(Path(settings.model).glob("tokenizer*")):
        return Alphabet(list(range(settings.base + 1)))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(settings.model, local_files_only=True)
    ids = []
    for text in [*map(str, range(settings.base)), SEPARATOR]:
        found = tokenizer.encode(text, add_special_tokens=False)
        if len(found) != 1:
            raise ValueError(f"{text!r} is {len(found)} tokens of {settings.model}; choose a smaller --base")
        ids += found
    return Alphabet(ids)
