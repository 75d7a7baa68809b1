"""The tensors that are moved: names and shapes, all of BF16."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

ELEMENT = 2
"""Bytes of an element."""
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """A set of tensors."""

    about: str
    shapes: Callable[[], Shapes]


def qwen() -> Shapes:
    """Qwen2.5-0.5B, by the numbers of its published configuration; embeddings are tied."""
    hidden, keys, inner, vocabulary = 896, 2 * 64, 4864, 151_936
    shapes: Shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for layer in range(24):
        at = f"model.layers.{layer}"
        for name, rows in ("q", hidden), ("k", keys), ("v", keys):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (rows, hidden)
            shapes[f"{at}.self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, hidden)
        for name, shape in ("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner)):
            shapes[f"{at}.mlp.{name}_proj.weight"] = shape
        for name in "input", "post_attention":
            shapes[f"{at}.{name}_layernorm.weight"] = (hidden,)
    return shapes


def even(tensors: int, shape: tuple[int, ...]) -> Shapes:
    """So many tensors of one shape."""
    return {f"tensor.{number}": shape for number in range(tensors)}


def size(shapes: Shapes) -> int:
    """Bytes of all."""
    return ELEMENT * sum(map(prod, shapes.values()))


CASES = {
    "qwen2.5-0.5b": Case("Qwen2.5-0.5B's 290 tensors, 0.99 GB", qwen),
    "few": Case("16 tensors of 128 MiB, 2 GiB", lambda: even(16, (8192, 8192))),
    "tiny": Case("5,000 tensors of 4 KiB, 20 MB", lambda: even(5000, (2048,))),
    "small": Case(
        "9 tensors of 8 KiB and one of three elements, for tests", lambda: even(9, (64, 64)) | {"odd": (3,)}
    ),
}
