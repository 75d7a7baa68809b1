"""Memory beside an engine's parameters: bytes land there while the engine generates."""

import torch

from ...host_copies import HostCopies


class Beside:
    """For each piece of a parameter, host memory of the same size; page-locked if the piece lies on a GPU."""

    def __init__(self) -> None:
        self._memory: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}
        self._copies = HostCopies()

    def of(self, place: torch.Tensor) -> torch.Tensor:
        """The memory beside `place`, a contiguous view of a parameter; the same when asked again."""
        key = (place.data_ptr(), tuple(place.shape))
        if key not in self._memory:
            self._memory[key] = self._copies.beside(place)
            self._copies.pair(f"parameter at {key[0]:#x}", place, self._memory[key])
        return self._memory[key]

    def install(self) -> None:
        """Copies everything into the parameters, and returns when the copies are complete."""
        self._copies.into(None)
