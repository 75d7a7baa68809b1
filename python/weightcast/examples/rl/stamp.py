"""The digest of the weights, and how it travels.

A version's number says which step made the weights; the digest says which weights. Trainers take it
before they publish and write it into a tensor of its own, `STAMP`, which is published with the rest:
it arrives with the bytes it is of, verified with them, in one version. Samples bear it, and samples
of other weights than those published under their number are nobody's.

The digest is a sum over elements by their place in the whole tensor, so the ranks' sums add up to the
same number however they share the model. It finds accidents, not adversaries, as weightcast's own.
"""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import weightcast as wc

STAMP = "rl.stamp"
"""The name of the published tensor that has the digest: one int64."""
BLOCK = 1 << 22
"""Elements that are summed at a time, so that a large tensor needs little memory beside it."""
ODD = -7046029254386353131
"""2^64 divided by the golden ratio, as an int64: spreads neighbours over all bits."""
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""An integer as wide as an element."""


class Piece(NamedTuple):
    """Contiguous elements of the tensor `name`, the first of which is number `start` of the whole."""

    name: str
    elements: Tensor
    start: int = 0


class Stamp:
    """The published tensor, of a trainer or a rollout."""

    def __init__(self) -> None:
        self.memory = torch.zeros(1, dtype=torch.int64)

    def add_to(self, layout: wc.Layout) -> wc.Layout:
        """Registers it with the weights."""
        return layout.add(self.memory, STAMP)

    def write(self, digest: int) -> None:
        """What is published next has this digest."""
        self.memory[0] = digest

    @property
    def text(self) -> str:
        """The digest of the weights held now, sixteen hexadecimal digits."""
        return f"{int(self.memory[0]) & 0xFFFF_FFFF_FFFF_FFFF:016x}"


@torch.no_grad()
def digest_of(pieces: Iterable[Piece], group: dist.ProcessGroup | None = None) -> int:
    """The digest of a replica of which `group`'s ranks hold the pieces; None: this rank holds all."""
    total = torch.zeros(1, dtype=torch.int64)
    for piece in pieces:
        total += _sum(piece)
    if group is not None:
        dist.all_reduce(total, group=group)
    return int(total)


def _sum(piece: Piece) -> Tensor:
    """The sum of one piece, modulo 2^64."""
    flat = piece.elements.detach().reshape(-1)
    bits = flat.view(BITS[flat.element_size()])
    name = zlib.crc32(piece.name.encode())
    total = torch.zeros(1, dtype=torch.int64)
    for at in range(0, bits.numel(), BLOCK):
        block = bits[at : at + BLOCK].to(torch.int64)
        first = piece.start + at
        place = torch.arange(first, first + block.numel(), dtype=torch.int64)
        mixed = (block ^ (name << 32)) * ODD + place
        mixed = (mixed ^ (mixed >> 29)) * ODD
        total += (mixed ^ (mixed >> 32)).sum()
    return total
