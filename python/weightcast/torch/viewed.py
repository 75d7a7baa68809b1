"""Tensors over a version that is viewed where it lies."""

import torch

from ..memory import TORCH
from ..view import Piece, View

_DTYPES = {name: getattr(torch, dtype, None) for dtype, name in TORCH.items()}


def viewed(view: View, shard: int | None = None) -> dict[str, torch.Tensor]:
    """The parts of tensors that a shard of a `View` holds, by name, as tensors over the memory of their
    owner. Nothing is copied: `module.load_state_dict(viewed(view), assign=True)` has a module compute with
    them.

    torch has no read-only tensors, and the memory is mapped for reading alone: a write to one ends the
    process."""
    return {name: _tensor(piece) for name, piece in view.by_name(shard).items()}


def _tensor(piece: Piece) -> torch.Tensor:
    dtype, itemsize = _DTYPES[piece.dtype], piece.itemsize
    assert dtype is not None, piece.dtype
    if 0 in piece.size:
        return torch.empty(piece.size, dtype=dtype)
    flat = torch.frombuffer(piece.buffer(), dtype=torch.uint8)
    steps = [stride // itemsize for stride in piece.strides]
    tensor = torch.empty(0, dtype=dtype)
    return tensor.set_(flat.untyped_storage(), flat.storage_offset(), piece.size, steps)
