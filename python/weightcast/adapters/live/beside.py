"""Memory beside an engine's parameters: bytes land there while the engine generates."""

import torch


class Beside:
    """For each piece of a parameter, host memory of the same size."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, tuple[int, ...]], tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, place: torch.Tensor) -> torch.Tensor:
        """The memory beside `place`, a contiguous view of a parameter; the same when asked again."""
        key = (place.data_ptr(), tuple(place.shape))
        if key not in self._pairs:
            memory = torch.empty(place.shape, dtype=place.dtype, device="cpu")
            # Padding within the piece is nothing that arrives.
            memory.copy_(place)
            self._pairs[key] = (place, memory)
        return self._pairs[key][1]

    def install(self) -> None:
        """Copies everything into the parameters."""
        for place, memory in self._pairs.values():
            place.copy_(memory)
