"""What outside of a module has a part in the memory of its tensors, and would be left behind."""

from bisect import bisect
from dataclasses import dataclass
from pathlib import Path

import torch

_SHARED = (
    "its memory is shared with other processes already (share_memory(), or a file), and they would be left "
    "behind; call share_ instead of share_memory(), or give it memory of its own (p.data = p.data.clone())"
)
_FOREIGN = (
    "its memory was not made by torch (from_numpy, frombuffer, DLPack), and what made that memory would be "
    "left behind; give it memory of its own (p.data = p.data.clone())"
)


@dataclass(frozen=True)
class _Mapping:
    start: int
    end: int
    is_shared: bool
    is_file: bool


class Mappings:
    """The mappings of this process, as they were when this was made."""

    def __init__(self) -> None:
        lines = Path("/proc/self/maps").read_text().splitlines()
        self._all = [_mapping(line.split(maxsplit=5)) for line in lines]

    def at(self, address: int) -> _Mapping | None:
        """The mapping that an address is in."""
        after = bisect(self._all, address, key=lambda mapping: mapping.start)
        found = self._all[after - 1] if after else None
        return found if found is not None and address < found.end else None


def _mapping(words: list[str]) -> _Mapping:
    start, end = (int(number, 16) for number in words[0].split("-"))
    return _Mapping(start, end, words[1][3] == "s", words[4] != "0")


def why_outside(tensor: torch.Tensor, mappings: Mappings) -> str | None:
    """Why the memory of a tensor is not torch's and this process's alone."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0 or (storage.resizable() and not storage.is_shared()):
        return None
    mapping = mappings.at(storage.data_ptr())
    if mapping is not None and mapping.is_shared:
        return _SHARED
    # A file that is mapped for this process alone, as safetensors and `torch.load(mmap=True)` do: no other
    # reader sees what is written there.
    if mapping is not None and mapping.is_file:
        return None
    return None if _is_torchs_own(tensor) else _FOREIGN


def _is_torchs_own(tensor: torch.Tensor) -> bool:
    """Whether torch alone frees the memory. `torch.load` makes such memory, and it is not resizable either.

    torch makes a lazy clone of such memory only: of other memory it does not know what else frees it."""
    clone = getattr(torch, "_lazy_clone", None)
    if clone is None:
        return False
    try:
        with torch.no_grad():
            clone(tensor)
    except RuntimeError:
        return False
    # The clone is gone: this takes the memory back, which is where it was.
    tensor.untyped_storage().data_ptr()
    return True
