"""Boxes of a tensor that are a range of its elements, in the order in which they lie."""

from collections.abc import Iterator, Sequence
from math import prod

#: First index and length by dimension.
Extent = tuple[tuple[int, ...], tuple[int, ...]]


def boxes_of(shape: Sequence[int], first: int, count: int) -> Iterator[Extent]:
    """The boxes that hold `count` elements from the element `first` on, one behind the other, each of them
    one after the other in memory as well. Of a matrix there are three at the most: the rest of a row, whole
    rows, the beginning of a row."""
    if not count:
        return
    if not shape:
        yield (), ()
        return
    inner = prod(shape[1:])
    row, offset = divmod(first, inner)
    if offset:
        part = min(count, inner - offset)
        yield from _within(row, boxes_of(shape[1:], offset, part))
        row, count = row + 1, count - part
    if rows := count // inner:
        yield (row, *(0 for _ in shape[1:])), (rows, *shape[1:])
        row, count = row + rows, count % inner
    yield from _within(row, boxes_of(shape[1:], 0, count))


def _within(row: int, boxes: Iterator[Extent]) -> Iterator[Extent]:
    for start, length in boxes:
        yield (row, *start), (1, *length)
