"""How much of a tensor boxes cover."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from .strides import Box


def covered(boxes: Iterable[Box], ndim: int) -> int:
    """Elements that lie in at least one box."""
    listed = list(boxes)
    if ndim == 0:
        return min(1, len(listed))
    ends = [_edges(listed, dim) for dim in range(ndim)]
    taken = np.zeros([max(0, len(edges) - 1) for edges in ends], dtype=bool)
    for box in listed:
        taken[
            tuple(
                slice(edges.searchsorted(start), edges.searchsorted(start + n))
                for edges, start, n in zip(ends, box.start, box.len, strict=True)
            )
        ] = True
    # Each cell of the grid between the edges is all covered, or not at all.
    sizes = taken.astype(np.int64)
    for dim, edges in enumerate(ends):
        sizes *= np.diff(edges).reshape([-1 if d == dim else 1 for d in range(ndim)])
    return int(sizes.sum())


def volume(boxes: Iterable[Box]) -> int:
    """Elements of all boxes, those that lie in several counted for each."""
    return sum(math.prod(box.len) for box in boxes)


def without(box: Box, others: Iterable[Box]) -> list[Box]:
    """What is left of a box, as boxes that do not overlap."""
    left = [box]
    for other in others:
        left = [part for one in left for part in _cut_out(one, other)]
    return left


def _cut_out(box: Box, other: Box) -> Iterator[Box]:
    sides = [(start, start + n) for start, n in zip(box.start, box.len, strict=True)]
    those = [(start, start + n) for start, n in zip(other.start, other.len, strict=True)]
    common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(sides, those, strict=True)]
    if any(first >= last for first, last in common):
        yield box
        return
    # Before it and behind it along the first dimension, then of what is left along the next one.
    for dim, (first, last) in enumerate(common):
        for part in ((sides[dim][0], first), (last, sides[dim][1])):
            if part[0] < part[1]:
                cut = [*sides[:dim], part, *sides[dim + 1 :]]
                yield Box(tuple(start for start, _ in cut), tuple(end - start for start, end in cut))
        sides[dim] = (first, last)


def _edges(boxes: list[Box], dim: int) -> np.ndarray:
    ends = [e for b in boxes for e in (b.start[dim], b.start[dim] + b.len[dim])]
    return np.unique(np.array(ends, dtype=np.int64))
