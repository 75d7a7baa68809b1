"""What fills a parameter: pieces of published tensors, and how they lie in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from .strides import Box


@dataclass(frozen=True)
class ParameterPiece:
    """A box of a published tensor, and the box of the parameter that it fills.

    `source.len` and `target.len` hold the same elements in the same order; they differ at most in
    dimensions of length 1. `also` names further tensors whose same box this is: tied weights.
    """

    tensor: str
    shape: tuple[int, ...]
    source: Box
    target: Box
    also: tuple["ParameterPiece", ...] = ()

    def as_record(self) -> list[str | int | None]:
        """As the layout data set writes it: `[tensor, source dim, start, length, target dim, start,
        index]`, the index being that of the local expert where the parameter is a stack."""
        target_start, target_len = list(self.target.start), list(self.target.len)
        index = None
        if len(target_len) == len(self.shape) + 1 and target_len[0] == 1:
            index, target_start, target_len = target_start[0], target_start[1:], target_len[1:]
        if not self.shape:
            return [self.tensor, 0, 0, 1, 0, target_start[0] if target_start else 0, index]
        cut = _cut(self.source, self.shape)
        if len(target_start) == len(self.shape):
            # A tensor that is whole may still lie between others along a dimension.
            at = next((d for d, start in enumerate(target_start) if start), cut)
        else:
            at = cut
        if self.source.len == self.shape:
            cut = at
        start = target_start[at] if at < len(target_start) else 0
        return [self.tensor, cut, self.source.start[cut], self.source.len[cut], at, start, index]


def _cut(box: Box, shape: Sequence[int]) -> int:
    return next((d for d, n in enumerate(shape) if box.len[d] != n), 0)


@dataclass(frozen=True)
class Buffer:
    """A contiguous box of a parameter that is the concatenation of pieces along one dimension."""

    #: The box of the parameter.
    box: Box
    #: Its shape as the pieces see it.
    shape: tuple[int, ...]
    along: int
    pieces: tuple[ParameterPiece, ...]
    #: Whether the pieces end before it does; the rest is zeros that the engine put there.
    padded: bool

    def content(self) -> tuple[object, ...]:
        """What lies in it; two buffers of the same content are copies of each other."""
        published = tuple((piece.tensor, piece.source) for piece in self.pieces)
        return (self.box.len, self.shape, self.along, published)


class Unlike(ValueError):
    """The pieces do not lie one behind the other."""


def buffers(shape: tuple[int, ...], pieces: Sequence[ParameterPiece]) -> list[Buffer]:
    """Cuts a parameter into contiguous buffers, each a concatenation of pieces. Raises `Unlike`."""
    whole = Box((0,) * len(shape), shape)
    return _buffers(whole, sorted(pieces, key=lambda p: p.target.start))


def _buffers(box: Box, pieces: Sequence[ParameterPiece]) -> list[Buffer]:
    if not pieces:
        return []
    found = _concatenation(box, pieces)
    if found is not None:
        return [found]
    axis = next((d for d, n in enumerate(box.len) if n > 1), None)
    if axis is None:
        return [_element(box, pieces)]
    # Rows that no piece crosses: cut there, each part is contiguous again.
    listed: list[Buffer] = []
    for start, end in _intervals(axis, pieces):
        part = Box(
            _with(box.start, axis, start),
            _with(box.len, axis, end - start),
        )
        inside = [p for p in pieces if start <= p.target.start[axis] < end]
        if len(inside) == len(pieces) and part.len == box.len:
            raise Unlike("its pieces do not lie one behind the other along a dimension")
        listed += _buffers(part, inside)
    return listed


def _element(box: Box, pieces: Sequence[ParameterPiece]) -> Buffer:
    """A parameter without dimensions, or one element of another."""
    if len(pieces) > 1:
        raise Unlike("two tensors fill one element")
    return Buffer(box, pieces[0].source.len, 0, tuple(pieces), False)


def _intervals(axis: int, pieces: Sequence[ParameterPiece]) -> list[tuple[int, int]]:
    spans = sorted((p.target.start[axis], p.target.start[axis] + p.target.len[axis]) for p in pieces)
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _concatenation(box: Box, pieces: Sequence[ParameterPiece]) -> Buffer | None:
    ranks = {len(p.shape) for p in pieces}
    if len(ranks) != 1:
        return None
    rank = ranks.pop()
    for axis in range(len(box.len)):
        padded = _one_behind_the_other(box, pieces, axis)
        if padded is None:
            continue
        for along, lengths in _fitted(box.len, rank, axis):
            if all(_fits(p.source.len, lengths, along) for p in pieces):
                return Buffer(box, lengths, along, tuple(pieces), padded)
    return None


def _one_behind_the_other(box: Box, pieces: Sequence[ParameterPiece], axis: int) -> bool | None:
    """Whether there is room left at the end; None if they do not lie so along this axis."""
    at = box.start[axis]
    for piece in sorted(pieces, key=lambda p: p.target.start[axis]):
        others = [d for d in range(len(box.len)) if d != axis]
        if any(
            (piece.target.start[d], piece.target.len[d]) != (box.start[d], box.len[d])
            for d in others
        ):
            return None
        if piece.target.start[axis] != at:
            return None
        at += piece.target.len[axis]
    return at < box.start[axis] + box.len[axis]


def _fitted(
    lengths: tuple[int, ...], rank: int, axis: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The same box with `rank` dimensions, by leaving out or putting in some of length 1, and
    where `axis` is then."""
    dims = list(enumerate(lengths))
    while len(dims) > rank:
        spare = next((i for i, (d, n) in enumerate(dims) if n == 1 and d != axis), None)
        if spare is None:
            spare = next((i for i, (_, n) in enumerate(dims) if n == 1), None)
        if spare is None:
            return
        del dims[spare]
    for places in combinations(range(rank), len(dims)):
        at = dict(zip(places, dims, strict=True))
        along = next((place for place, (d, _) in at.items() if d == axis), 0)
        yield along, tuple(at[place][1] if place in at else 1 for place in range(rank))


def _fits(source: tuple[int, ...], lengths: tuple[int, ...], along: int) -> bool:
    return all(s == n for d, (s, n) in enumerate(zip(source, lengths, strict=True)) if d != along)


def _with(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return values[:axis] + (value,) + values[axis + 1 :]
