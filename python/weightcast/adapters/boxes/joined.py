"""Published tensors that a loader joins before it writes them, as `torch.cat` does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .strides import NotBoxes, View, coordinates


@dataclass(frozen=True)
class Joined:
    """A contiguous tensor that is several others, one behind the other along `dim`."""

    base: View
    dim: int
    #: The tensors that were joined.
    parts: tuple[View, ...]


def cut(joined: Joined, source: View, target: View) -> Iterator[tuple[int, View, View]]:
    """A copy of a view of a joined tensor, as a copy for each tensor that has something in it: its
    number, the view of it, and where that goes. Raises `NotBoxes`."""
    if source.strides != joined.base.strides or source.shape != target.shape:
        raise NotBoxes("joins it with others, and takes them in another order")
    dim, begin = joined.dim, 0
    start = coordinates(joined.base, source.offset)
    for number, part in enumerate(joined.parts):
        length = part.shape[dim]
        low = max(start[dim], begin)
        high = min(start[dim] + source.shape[dim], begin + length)
        if low < high:
            shape = _with(source.shape, dim, high - low)
            inside = _with(start, dim, low - begin)
            at = sum(i * stride for i, stride in zip(inside, part.strides, strict=True))
            skipped = (low - start[dim]) * target.strides[dim]
            of_part = View(shape, part.strides, part.offset + at)
            yield number, of_part, View(shape, target.strides, target.offset + skipped)
        begin += length


def _with(values: Sequence[int], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
