"""A publisher that holds a checkpoint in random pieces, as no trainer would and any may."""

import random
from collections.abc import Mapping

import torch

from .. import layout as layouts

#: Shards of a publisher, and pieces of one tensor, at most.
SHARDS = 3
PIECES = 4


class Publisher:
    """One replica of random shards: every tensor cut along a random dimension at random places,
    pieces in any order on any shard, some on two."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], draw: random.Random) -> None:
        self._copies: list[tuple[torch.Tensor, str, tuple[slice, ...]]] = []
        shards: list[list[tuple[torch.Tensor, layouts.Part]]] = [
            [] for _ in range(draw.randint(1, SHARDS))
        ]
        for name, tensor in tensors.items():
            for box, part in _cut(name, tensor, draw):
                holders = draw.sample(range(len(shards)), draw.choice((1, 1, min(2, len(shards)))))
                for shard in holders:
                    piece = tensor[box].clone().contiguous()
                    self._copies.append((piece, name, box))
                    shards[shard].append((piece, part))
        self.layouts = []
        for held in shards:
            draw.shuffle(held)
            layout = layouts.Layout()
            for piece, part in held:
                layout.add(piece, [part])
            self.layouts.append(layout)

    def fill(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Goes over to other values, in place."""
        for piece, name, box in self._copies:
            piece.copy_(tensors[name][box])

    def spoil(self, tensor: str) -> None:
        """Changes a byte of each piece of a tensor, which a publisher has promised not to do."""
        for piece, name, _ in self._copies:
            if name == tensor:
                piece.view(-1).view(torch.uint8)[0] ^= 1


def _cut(
    name: str, tensor: torch.Tensor, draw: random.Random
) -> list[tuple[tuple[slice, ...], layouts.Part]]:
    shape = list(tensor.shape)
    dims = [dim for dim, n in enumerate(shape) if n > 1]
    if not dims or draw.random() < 0.2:
        return [((), layouts.part(name, shape=shape))]
    dim = draw.choice(dims)
    cuts = draw.sample(range(1, shape[dim]), min(draw.randint(0, PIECES - 1), shape[dim] - 1))
    edges = [0, *sorted(cuts), shape[dim]]
    pieces = []
    for start, end in zip(edges, edges[1:], strict=False):
        box = (slice(None),) * dim + (slice(start, end),)
        part = layouts.part(name, dim=dim, start=start, length=end - start, shape=shape)
        pieces.append((box, part))
    return pieces
