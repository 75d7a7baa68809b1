"""Arrays and tensors in memory that other processes of this host can map: what is published from there is
read without a system call."""

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._core import Misuse, SharedMemory
from .arguments import counted

#: Each array begins at a line of the cache.
_LINE = 64


def empty_like(like: Any, *, numa_node: int | None = None) -> Any:
    """An array or tensor of the same shape and type as `like` in shared memory, all zeros.

    Of a dict, a list or a tuple, one of each: in one piece of memory, so that an export of all of them is
    lent as one. Tensors are on the CPU, contiguous, and ask for no gradients.

    With `numa_node` all pages come from the memory of that node, for whoever writes them. `Misuse` names the
    nodes that there are, if that is none of them.
    """
    found: list[Any] = []
    rebuild = _taken_apart(like, found)
    pieces = iter(allocate([_nbytes(one) for one in found], numa_node))
    return rebuild([_as(one, next(pieces)) for one in found])


def allocate(sizes: Sequence[int], numa_node: int | None = None) -> list[Any]:
    """Writable buffers of these sizes, in one piece of shared memory that is there as long as any of them."""
    node = None if numa_node is None else counted("numa_node", numa_node)
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _LINE) * _LINE
    memory = SharedMemory(end, node)
    return [_buffer(memory, start, size) for start, size in zip(starts, sizes, strict=True)]


def _buffer(memory: SharedMemory, start: int, size: int) -> Any:
    buffer = (ctypes.c_ubyte * size).from_address(memory.address + start)
    buffer.memory = memory  # type: ignore[attr-defined]  # there as long as the buffer
    return buffer


def _taken_apart(like: Any, found: list[Any]) -> Any:
    """Adds what is in `like` to `found`, and returns what puts as many others together in the same way."""
    if isinstance(like, Mapping):
        keys, parts = list(like), [_taken_apart(one, found) for one in like.values()]
        return lambda made: dict(zip(keys, _each(parts, made), strict=True))
    if isinstance(like, list | tuple):
        kind, parts = type(like), [_taken_apart(one, found) for one in like]
        make = getattr(kind, "_make", kind)  # a namedtuple takes its fields one by one
        return lambda made: make(_each(parts, made))
    if not _is_array(like) and not _is_tensor(like):
        kinds = "a numpy array, a torch tensor, or a dict or list of such"
        raise TypeError(f"empty_like: {kinds} is needed, not {type(like)}")
    if _is_tensor(like):
        _check_dense(like)
    found.append(like)
    return lambda made: made.pop(0)


def _each(parts: list[Any], made: list[Any]) -> list[Any]:
    return [part(made) for part in parts]


def _is_array(one: Any) -> bool:
    return isinstance(one, np.ndarray)


def _is_tensor(one: Any) -> bool:
    return hasattr(one, "untyped_storage")


def _check_dense(tensor: Any) -> None:
    import torch

    if tensor.layout is not torch.strided:
        what = f"a tensor of layout {tensor.layout} keeps several pieces of memory"
        raise Misuse(f"empty_like: {what}; give those, or tensor.to_dense()")
    if tensor.is_quantized:
        what = f"a quantised tensor ({tensor.dtype}) is more than its bytes"
        raise Misuse(f"empty_like: {what}; give tensor.int_repr(), and keep its scales beside")


def _nbytes(one: Any) -> int:
    if _is_array(one) and one.dtype.hasobject:
        raise Misuse(f"empty_like: objects of Python are nothing to share ({one.dtype})")
    itemsize = one.dtype.itemsize
    return int(math.prod(one.shape) * itemsize)


def _as(one: Any, buffer: Any) -> Any:
    if _is_array(one):
        return np.frombuffer(buffer, np.uint8).view(one.dtype).reshape(one.shape)
    import torch

    if one.numel() == 0:
        return torch.empty(one.shape, dtype=one.dtype)
    return torch.frombuffer(buffer, dtype=torch.uint8).view(one.dtype).view(one.shape)
