"""Staged tensors: published bytes on their way into a parameter that holds them otherwise."""

from dataclasses import dataclass

import torch

from ..boxes.pieces import ParameterPiece


@dataclass
class Staged:
    """A piece in its published form, and how the engine's loader converts it."""

    piece: ParameterPiece
    parameter: torch.Tensor
    #: The types it is cast to on the way, from the published one to the parameter's.
    dtypes: tuple[torch.dtype, ...]
    #: Which dimension of the source runs along which of the target, for those longer than 1.
    axes: tuple[tuple[int, int], ...]
    memory: torch.Tensor | None = None

    def allocate(self, *, on_host: bool = False) -> torch.Tensor:
        """The tensor that receives the published bytes, where the parameter is or on the host."""
        if self.memory is None:
            device = torch.device("cpu") if on_host else self.parameter.device
            self.memory = torch.empty(self.piece.source.len, dtype=self.dtypes[0], device=device)
        return self.memory

    def convert(self) -> None:
        """Writes it into the parameter."""
        if self.memory is None:
            return
        value = self.memory.squeeze()
        for dtype in self.dtypes[1:]:
            value = value.to(dtype)
        targets = [target for _, target in self.axes]
        value = value.permute([targets.index(axis) for axis in sorted(targets)])
        place = self.parameter.detach()
        box = self.piece.target
        for dim, (start, length) in enumerate(zip(box.start, box.len, strict=True)):
            place = place.narrow(dim, start, length)
        place.copy_(value.reshape(box.len))
