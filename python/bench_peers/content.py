"""What the tensors hold: bytes that follow from a tensor's name and the version's number.

Random bytes, repeated after so many that no two places of a tensor that lie a multiple of a page apart are
alike, begun elsewhere for each tensor and version. Cheap to write and to compare: memory's own speed.
"""

import ctypes
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PERIOD = (8 << 20) + 13
Octets = NDArray[np.uint8]
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Content:
    """Twice the random bytes, so that each begin has a period behind it."""

    def __init__(self) -> None:
        once = np.random.default_rng(18).integers(0, 256, PERIOD, dtype=np.uint8)
        self.twice: Octets = np.concatenate([once, once])

    def fill(self, memory: Octets, name: str, version: int) -> None:
        """Makes a tensor's bytes a version's."""
        for part, wanted in self._beside(memory, name, version):
            part[:] = wanted

    def wrong(self, memory: Octets, name: str, version: int) -> int | None:
        """The first byte that is not the version's."""
        at = 0
        for part, wanted in self._beside(memory, name, version):
            if _memcmp(part.ctypes.data, wanted.ctypes.data, part.size):
                return at + int(np.argmax(part != wanted))
            at += part.size
        return None

    def _beside(self, memory: Octets, name: str, version: int) -> Iterator[tuple[Octets, Octets]]:
        begin = zlib.crc32(f"{name}/{version}".encode()) % PERIOD
        for at in range(0, memory.size, PERIOD):
            part = memory[at : at + PERIOD]
            yield part, self.twice[begin : begin + part.size]
