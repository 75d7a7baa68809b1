"""Host memory that a GPU reads and writes at the speed of its bus: page-locked, in slabs."""

import logging
import mmap
import weakref
from typing import Any

import numpy as np

log = logging.getLogger("weightcast")

#: Bytes of a slab that small tensors share, since page-locking costs a call each. Those of more than an
#: eighth have a slab of their own.
SLAB_BYTES = 64 << 20
#: Tensors begin at multiples of it, as those of the CUDA allocator do.
ALIGNMENT = 512


class PinnedMemory:
    """Hands out host memory for tensors of a device. A slab lives as long as a tensor in it."""

    def __init__(self) -> None:
        #: Bytes of the newest slab that are free, by the type of the device that it is locked for.
        self._free: dict[str, np.ndarray] = {}

    def empty(self, like: Any) -> Any:
        """An uninitialised, contiguous host tensor of the shape and dtype of `like`."""
        return self.sized(like.shape, like.dtype, like.device.type)

    def sized(self, shape: Any, dtype: Any, device: str) -> Any:
        """The same, of this shape and dtype, for a device of this type."""
        import torch

        needed = torch.Size(shape).numel() * dtype.itemsize
        if not needed:
            return torch.empty(shape, dtype=dtype)
        if needed > SLAB_BYTES // 8:
            mine = _slab(needed, device)
        else:
            if len(self._free.get(device, ())) < needed:
                self._free[device] = _slab(SLAB_BYTES, device)
            mine = self._free[device]
            self._free[device] = mine[-(-needed // ALIGNMENT) * ALIGNMENT :]
        return torch.from_numpy(mine[:needed]).view(dtype).view(shape)


def _slab(nbytes: int, device: str) -> np.ndarray:
    """Whole pages, none of which has anything else: a page can be locked once only."""
    nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.empty(nbytes + mmap.PAGESIZE, dtype=np.uint8)
    start = -memory.ctypes.data % mmap.PAGESIZE
    slab = memory[start : start + nbytes]
    if device == "cuda":
        _lock(memory, slab)
    return slab


def _lock(owner: np.ndarray, slab: np.ndarray) -> None:
    """Locks the pages of `slab` until `owner`, whose memory they are, is freed."""
    import torch

    runtime, address = torch.cuda.cudart(), slab.ctypes.data
    failed = runtime.cudaHostRegister(address, slab.nbytes, 0)
    if int(failed) != 0:
        log.warning(
            "%d bytes of host memory could not be page-locked (CUDA error %d): copies from and to the GPU "
            "will be slower; raise the limit of locked memory (ulimit -l)",
            slab.nbytes,
            int(failed),
        )
        return
    # Numpy tells weak references before it frees the memory. At exit the system lets go of all by itself.
    weakref.finalize(owner, runtime.cudaHostUnregister, address).atexit = False
