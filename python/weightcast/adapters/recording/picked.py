"""Elements that a loader picks by their numbers, as the experts of a rank: runs of slices."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

_aten = torch.ops.aten


def picked(func: Any, args: Sequence[Any]) -> tuple[int, list[int]] | None:
    """The dimension along which an op picks slices of its first argument, and their numbers; None
    if it does something else, or nobody knows the numbers."""
    if func is _aten.index_select.default:
        dim, numbers = args[1], args[2]
    elif func is _aten.index.Tensor:
        given = [(dim, numbers) for dim, numbers in enumerate(args[1]) if numbers is not None]
        if len(given) != 1:
            return None
        dim, numbers = given[0]
    else:
        return None
    if numbers.ndim != 1 or numbers.device.type == "meta":
        return None
    if numbers.dtype == torch.bool:
        numbers = numbers.nonzero().flatten()
    size = args[0].shape[dim]
    return dim % args[0].ndim, [n + size if n < 0 else n for n in numbers.tolist()]


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each run of consecutive numbers starts, and how long it is."""
    start, length = None, 0
    for number in numbers:
        if start is not None and number == start + length:
            length += 1
            continue
        if start is not None:
            yield start, length
        start, length = number, 1
    if start is not None:
        yield start, length
