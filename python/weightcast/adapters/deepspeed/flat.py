"""Pieces of flattened tensors as boxes."""

from collections.abc import Sequence
from math import prod

#: First index and length by dimension.
FlatBox = tuple[tuple[int, ...], tuple[int, ...]]


def boxes(shape: Sequence[int], start: int, count: int) -> list[FlatBox]:
    """The boxes that `count` elements from `start` on of a flattened tensor are, in their order: each is
    contiguous, and of a matrix there are at most three (the rest of a row, whole rows, the start of one)."""
    if count <= 0:
        return []
    if not shape:
        return [((), ())]
    each = prod(shape[1:])
    first, into = divmod(start, each)
    if into or count < each:
        taken = min(count, each - into)
        inner = boxes(shape[1:], into, taken)
        rows = [((first, *at), (1, *length)) for at, length in inner]
    else:
        taken = count - count % each
        rows = [((first, *([0] * (len(shape) - 1))), (taken // each, *shape[1:]))]
    return rows + boxes(shape, start + taken, count - taken)
