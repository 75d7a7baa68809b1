"""Layouts: which slices of which logical tensors lie where in this worker's memory."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from .host_copies import HostCopies
from .memory import checked, describe, form_of, on_device
from .names import PublishedSlice
from .origins import Origins

#: Replaces each int32 by the largest over all shards of the group. All of them call it together.
Exchange = Callable[[npt.NDArray[np.int32]], None]


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
    chunked = index is not None or of is not None
    ranged = start is not None or length is not None
    if chunked and ranged:
        raise ValueError(f"{name}: give index and of, or start and length, not both")
    if (chunked or ranged) == (dim is None):
        raise ValueError(f"{name}: a cut needs dim with index and of, or with start and length")
    if dim is None:
        return Part(core)
    if chunked:
        if index is None or of is None:
            raise ValueError(f"{name}: index and of go together")
        return Part(core.chunk(dim, index, of))
    if start is None or length is None:
        raise ValueError(f"{name}: start and length go together")
    return Part(core.range(dim, start, length))


def part_of(published: PublishedSlice) -> Part:
    """A slice of a published tensor as a part."""
    core = _core.Part(published.name, list(published.shape))
    for dim, (first, count) in enumerate(zip(published.start, published.length, strict=True)):
        core = core.range(dim, first, count)
    return Part(core)


class Layout:
    """What one worker's memory holds, tensor by tensor.

    Numpy arrays and torch CPU tensors are taken as they are, without copying, and kept alive as
    long as the layout or a handle that registered it. Tensors of a GPU get a copy in page-locked host
    memory, which is what is registered: `publish` copies out of the GPU, `update` copies into it. With
    `beside`, torch tensors of the host get such a copy as well, so that they may be changed while their
    copies are published, or used while a version is fetched.

    Without `memory` nothing can be registered: tensors may lie on torch's `meta` device, and the layout is
    there to be described and planned (`weightcast.plans`).
    """

    def __init__(self, *, beside: bool = False, memory: bool = True) -> None:
        self._core = _core.Layout()
        #: Whether there is memory, so that it can be registered.
        self.memory = memory
        #: Name, address and length of each tensor's bytes.
        self._places: list[tuple[str, int, int]] = []
        #: Takes the largest of each number over all shards, in place: see `Handle.register`.
        self.exchange: Exchange | None = None
        #: Whose memory it is; asked again when the layout is registered and used.
        self.origins = Origins()
        self._beside = beside
        #: Host memory beside tensors.
        self.copies = HostCopies()
        #: Whether memory lies in files on purpose: then `register` does not warn of files that may be cut.
        self.mapped = False
        #: Whether what is registered is not in use, though no tensor has a copy here: an adapter has its own.
        self.apart = False

    def add(
        self,
        tensor: Any,
        parts: str | Part | Iterable[Part],
        *,
        along: int = 0,
        pad: bool = False,
        dtype: str | None = None,
        name: str | None = None,
    ) -> "Layout":
        """Adds a contiguous tensor that is the concatenation of `parts` along dimension `along`.

        A name alone stands for that whole logical tensor. With `pad`, the tensor may be longer than
        its parts (a vocabulary rounded up); the rest is left alone (and where the tensor has a copy beside
        it, written back as it was when it was added). `dtype` (a safetensors name
        such as `BF16` or `F8_E4M3`) is for numpy arrays of types that numpy does not know. `name` is what
        the tensor is called here, in errors and in `weightcast plan explain`.
        """
        name = name or (parts if isinstance(parts, str) else f"buffer {len(self)}")
        if not self.memory:
            known, shape = form_of(name, tensor, dtype)
            self._core.add(name, None, known, shape, _cores(parts, shape), along, pad)
            return self
        copied = self._beside or on_device(tensor)
        registered = self.copies.beside(checked(name, tensor)) if copied else tensor
        memory = describe(name, registered, dtype)
        self._core.add(
            name, memory.bytes, memory.dtype, memory.shape, _cores(parts, memory.shape), along, pad
        )
        if copied:
            self.copies.pair(name, tensor, registered)
        self.origins.tensor(name, tensor)
        self._places.append((name, memory.bytes.ctypes.data, memory.bytes.nbytes))
        return self

    def also(self, parts: Part | Iterable[Part], *, along: int = 0) -> "Layout":
        """Says that the tensor just added is `parts` as well: tied weights, published under both
        names and lying in memory once."""
        listed = [parts] if isinstance(parts, Part) else list(parts)
        self._core.also([p._core for p in listed], along)
        return self

    def quantise(
        self,
        names: str,
        *,
        block: tuple[int, int] = (128, 128),
        formula: str = "deepgemm",
        scales: str = "F32",
        suffix: str = "_scale_inv",
    ) -> "Layout":
        """Publishes tensors in FP8: e4m3 codes under their name, and one scale for each block of
        rows and columns under that name with `suffix`.

        `names` is a name in which `*` stands for anything; of several rules (`quantise`, `cast`,
        `keep`) the first that fits a tensor decides; `register` refuses one that fits nothing in the
        whole group. Tensors are F32, BF16 or F16 with two
        dimensions or more; blocks are of the last two, the last ones ragged. `formula` says how
        scales are made: `triton` (slime, Miles, verl), `offline`, `reciprocal`, `deepgemm` (vLLM,
        SGLang), `deepgemm-ue8m0-bits`, `deepgemm-ue8m0-log2`; the last two make powers of two,
        which `scales="F8_E8M0"` stores in a byte each. They differ by bits: take the engine's.

        Nothing is stored but the scales: codes are made from the weights as readers ask for them,
        over the data port, about a megabyte at a time. The memory can be published, not filled.
        """
        self._core.quantise(names, block, formula, scales, suffix)
        return self

    def cast(self, names: str, dtype: str) -> "Layout":
        """Publishes tensors of these names as `F32`, `BF16` or `F16`, rounded to nearest as torch
        does; made as they are read, like `quantise`."""
        self._core.cast(names, dtype)
        return self

    def keep(self, names: str) -> "Layout":
        """Publishes tensors of these names as they are, whatever later rules say."""
        self._core.keep(names)
        return self

    def describe(self) -> str:
        """What a worker publishes of this, or receives into it, without the memory: a text that goes to other
        processes and into files, for `weightcast.plans`. All parts need their global shapes."""
        return self._core.describe()

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self._core)

    @property
    def all_beside(self) -> bool:
        """Whether a fetch changes no tensor that is in use: every one has a copy in host memory."""
        return self.apart or len(self.copies) == len(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, padding included."""
        return self._core.nbytes


def _cores(parts: str | Part | Iterable[Part], shape: list[int]) -> list[_core.Part]:
    if isinstance(parts, str):
        return [part(parts, shape=shape)._core]
    return [p._core for p in ([parts] if isinstance(parts, Part) else parts)]
