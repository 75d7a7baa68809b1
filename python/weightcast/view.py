"""A version that another process of this host shares, read where it lies: nothing is copied."""

import ctypes
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from . import _core
from .memory import NUMPY

#: numpy's types by their safetensors names. numpy has no type for some: their elements are shown as unsigned
#: integers of the same size.
_BY_NAME = {name: dtype for dtype, name in NUMPY.items()} | {
    "BF16": "uint16",
    "F8_E4M3": "uint8",
    "F8_E5M2": "uint8",
    "F8_E8M0": "uint8",
}


@dataclass(frozen=True)
class Piece:
    """Part of a tensor, where it lies: `shape` is that of the whole tensor, `start` where the part begins in
    it, `size` its own shape and `strides` the bytes from one index to the next."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    #: Of the first element.
    address: int
    #: What keeps the memory mapped.
    memory: Any

    @property
    def whole(self) -> bool:
        """Whether it is all of the tensor."""
        return self.size == self.shape

    def buffer(self) -> Any:
        """All bytes from the first element to the last. Whoever writes to them ends the process."""
        if 0 in self.size:
            return (ctypes.c_ubyte * 0)()
        last = sum(stride * (size - 1) for stride, size in zip(self.strides, self.size, strict=True))
        buffer = (ctypes.c_ubyte * (last + self.itemsize)).from_address(self.address)
        buffer.memory = self.memory  # type: ignore[attr-defined]  # mapped as long as the buffer is there
        return buffer

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._element().itemsize

    def array(self) -> np.ndarray:
        """The part as a read-only array. Types that numpy does not have come as unsigned integers."""
        array = np.ndarray(self.size, self._element(), self.buffer(), strides=self.strides)
        array.flags.writeable = False
        return array

    def _element(self) -> "np.dtype[Any]":
        if self.dtype not in _BY_NAME:
            what = f"no type of numpy has elements of {self.dtype}"
            raise _core.Misuse(f"{self.name}: {what}; copy it instead")
        return np.dtype(_BY_NAME[self.dtype])


class View:
    """A version in the memory of another replica of this host. Made by `Handle.view`.

    The replica waits for nobody who views: once it gives the version up (`unpublish`, `update`, the end of
    its handle) it may change the memory. What was read counts if `check` passes afterwards. As a context
    manager, `check` is called at the end of a block that ends well. Arrays and tensors stay mapped as long
    as they are there, whatever becomes of this object.
    """

    def __init__(self, core: _core.View) -> None:
        self._core = core

    @property
    def version(self) -> int:
        """The version."""
        return self._core.version[0]

    @property
    def epoch(self) -> int:
        """The training run that the version belongs to."""
        return self._core.version[1]

    @property
    def replica(self) -> str:
        """The replica whose memory is viewed."""
        return self._core.replica

    @property
    def shards(self) -> list[int]:
        """The shards that are mapped."""
        return self._core.shards

    @property
    def whole(self) -> bool:
        """Whether all that this thread has read so far was of the version. Once false, false for ever."""
        return self._core.whole

    def check(self) -> None:
        """Raises `ViewEnded` unless all that this thread has read so far was of the version."""
        if not self.whole:
            raise _core.ViewEnded(
                f"{self.replica} has given version {self.version} up: what was read since the last check may "
                "be of another version; drop it, and view again"
            )

    def pieces(self, shard: int | None = None) -> list[Piece]:
        """The parts of tensors that a shard holds; of the only one if none is named."""
        found = self._core.pieces(self._shard(shard))
        return [
            Piece(name, dtype, tuple(shape), tuple(start), tuple(size), tuple(strides), address, self._core)
            for name, dtype, shape, start, size, strides, address in found
        ]

    def arrays(self, shard: int | None = None) -> dict[str, np.ndarray]:
        """The parts of tensors that a shard holds, by name, as read-only arrays. Types that numpy does not
        have come as unsigned integers of the same size."""
        return {name: piece.array() for name, piece in self.by_name(shard).items()}

    def by_name(self, shard: int | None = None) -> dict[str, Piece]:
        """`pieces` by the names of their tensors. Raises `Misuse` where a tensor lies in several."""
        found: dict[str, Piece] = {}
        for piece in self.pieces(shard):
            if piece.name in found:
                raise _core.Misuse(f"{piece.name} lies in several pieces there: use pieces()")
            found[piece.name] = piece
        return found

    def _shard(self, shard: int | None) -> int:
        mapped = self.shards
        if shard is None and len(mapped) != 1:
            raise _core.Misuse(f"{len(mapped)} shards are mapped: say which, as shard=")
        wanted = mapped[0] if shard is None else shard
        if wanted not in mapped:
            raise _core.Misuse(f"shard {wanted} is not mapped, only {mapped}")
        return wanted

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.check()

    def __repr__(self) -> str:
        state = "whole" if self.whole else "ended"
        return f"View(version={self.version}, replica={self.replica!r}, shards={self.shards}, {state})"
