"""What all collectives share, and the plainest of them: each tensor broadcast by itself."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..model import ELEMENT, Memory, elements, octets
from .way import Place, Task, Way


class Collective(Way):
    """A way over process groups of gloo, which all processes join when the first of these ways is opened."""

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        join(place)
        self.names = list(place.shapes)
        self.local = {piece.name: piece for piece in memory.pieces}
        self.groups: list[dist.ProcessGroup] = []
        trainers = list(range(place.trainers))
        self.trainers = self.group(trainers) if place.trainer == "fsdp2" else None

    def group(self, ranks: Sequence[int]) -> dist.ProcessGroup:
        """A process group. All processes make all groups, in the same order."""
        made = dist.new_group(list(ranks))
        self.groups.append(made)
        return made

    def gathered(self, names: Sequence[str]) -> list[Tensor]:
        """At a trainer: tensors as whole ones, as bytes. With FSDP2 all trainers gather them first."""
        own = [octets(self.memory.tensors[name]) for name in names]
        if self.trainers is None:
            return own
        rows = [-(-self.place.shapes[name][0] // self.place.trainers) for name in names]
        padded = [n * self.local[name].row * ELEMENT for n, name in zip(rows, names, strict=True)]
        mine = torch.zeros(sum(padded), dtype=torch.uint8)
        for at, part in zip(mine.split(padded), own, strict=True):
            at[: part.numel()].copy_(part)
        parts = [torch.empty_like(mine) for _ in range(self.place.trainers)]
        dist.all_gather(parts, mine, group=self.trainers)
        cut = [part.split(padded) for part in parts]
        return [
            torch.cat([part[i] for part in cut])[: self.whole_bytes(name)] for i, name in enumerate(names)
        ]

    def whole_bytes(self, name: str) -> int:
        """Of a whole tensor."""
        return ELEMENT * elements(self.place.shapes[name])

    def landing(self, name: str) -> Tensor:
        """At a rollout: where a whole tensor goes. Its own memory, if it holds all of it."""
        if self.local[name].whole:
            return octets(self.memory.tensors[name])
        return torch.empty(self.whole_bytes(name), dtype=torch.uint8)

    def landed(self, name: str, whole: Tensor) -> None:
        """Takes the rows that are this rollout's, if they are not in place already."""
        piece, own = self.local[name], octets(self.memory.tensors[name])
        if whole.data_ptr() != own.data_ptr():
            width = piece.row * ELEMENT
            own.copy_(whole[piece.start * width : (piece.start + piece.rows) * width])

    def unpack(self, work: Any, packed: Tensor, names: Sequence[str]) -> None:
        """Waits for a bucket, and takes the tensors out of it."""
        if work is not None:
            work.wait()
        for name, whole in zip(names, packed.split([self.whole_bytes(n) for n in names]), strict=True):
            self.landed(name, whole)

    def close(self) -> None:
        """Leaves the groups of this way."""
        for group in self.groups:
            dist.destroy_process_group(group)


class Broadcast(Collective):
    """`torch.distributed.broadcast` of each tensor, by the first trainer to all rollouts."""

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        self.line = self.group([0, *place.ends])

    def send(self, version: int) -> None:
        """Gathers each tensor if there is need to, and sends it."""
        for name in self.names:
            (whole,) = self.gathered([name])
            if self.place.rank == 0:
                dist.broadcast(whole, src=0, group=self.line)

    def receive(self, version: int) -> None:
        """Into the memory itself, where that holds the whole tensor."""
        for name in self.names:
            whole = self.landing(name)
            dist.broadcast(whole, src=0, group=self.line)
            self.landed(name, whole)


def join(place: Place) -> None:
    """Makes this process a rank of the run, once."""
    if dist.is_initialized():
        return
    wait = timedelta(seconds=place.timeout)
    store = dist.TCPStore(*place.store, is_master=False, timeout=wait)
    ranks = dist.PrefixStore("ranks", store)
    dist.init_process_group("gloo", store=ranks, rank=place.rank, world_size=place.world, timeout=wait)
