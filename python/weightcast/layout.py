"""Layouts: which slices of which logical tensors lie where in this worker's memory."""

from collections.abc import Iterable
from typing import Any

from . import _core
from .memory import describe


class Part:
    """A piece of a logical tensor, by its published name. Made by `part`."""

    def __init__(self, core: _core.Part) -> None:
        self._core = core


def part(
    name: str,
    *,
    dim: int | None = None,
    index: int | None = None,
    of: int | None = None,
    start: int | None = None,
    length: int | None = None,
    shape: Iterable[int] | None = None,
) -> Part:
    """A piece of the logical tensor `name`: the whole, or a cut along `dim`.

    A cut is either chunk `index` of `of` (torch's uneven rule: `ceil(n / of)` each, the last ones
    shorter or empty), or `length` indices from `start`. The global `shape` may be left out: then it
    is looked up in the newest published version when the layout is registered.
    """
    core = _core.Part(name, None if shape is None else list(shape))
    chunked, ranged = (index, of) != (None, None), (start, length) != (None, None)
    if chunked and ranged:
        raise ValueError(f"{name}: give index and of, or start and length, not both")
    if (chunked or ranged) == (dim is None):
        raise ValueError(f"{name}: a cut needs dim with index and of, or with start and length")
    if chunked:
        if index is None or of is None:
            raise ValueError(f"{name}: index and of go together")
        core = core.chunk(dim, index, of)
    if ranged:
        if start is None or length is None:
            raise ValueError(f"{name}: start and length go together")
        core = core.range(dim, start, length)
    return Part(core)


class Layout:
    """What one worker's memory holds, tensor by tensor.

    Numpy arrays and torch CPU tensors are taken as they are, without copying, and kept alive as
    long as the layout or a handle that registered it.
    """

    def __init__(self) -> None:
        self._core = _core.Layout()

    def add(
        self,
        tensor: Any,
        parts: str | Part | Iterable[Part],
        *,
        along: int = 0,
        pad: bool = False,
        dtype: str | None = None,
    ) -> "Layout":
        """Adds a contiguous tensor that is the concatenation of `parts` along dimension `along`.

        A name alone stands for that whole logical tensor. With `pad`, the tensor may be longer than
        its parts (a vocabulary rounded up); the rest is left alone. `dtype` (a safetensors name
        such as `BF16` or `F8_E4M3`) is for numpy arrays of types that numpy does not know.
        """
        whole = isinstance(parts, str)
        memory = describe(parts if whole else f"buffer {len(self)}", tensor, dtype)
        if whole:
            name, listed = parts, [part(parts, shape=memory.shape)]
        else:
            listed = [parts] if isinstance(parts, Part) else list(parts)
            name = f"buffer {len(self)}"
        cores = [p._core for p in listed]
        self._core.add(name, memory.bytes, memory.dtype, memory.shape, cores, along, pad)
        return self

    def also(self, parts: Part | Iterable[Part], *, along: int = 0) -> "Layout":
        """Says that the tensor just added is `parts` as well: tied weights, published under both
        names and lying in memory once."""
        listed = [parts] if isinstance(parts, Part) else list(parts)
        self._core.also([p._core for p in listed], along)
        return self

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self._core)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, padding included."""
        return self._core.nbytes
