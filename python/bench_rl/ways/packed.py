"""Tensors in flat buckets, several of which are on their way at a time."""

from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..model import Memory
from .collective import Collective
from .way import Place, Task

MIB = 1 << 20
FLIGHT = 2
"""Buckets that are on their way at once: gloo has two threads for a group."""
SIZES = 1, 4, 16
"""MiB of a bucket, of which a search takes the best."""


class Packed(Collective):
    """Broadcasts of buckets. With `senders="all"` trainers take turns: each has the whole model, or has
    gathered it."""

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        self.buckets = buckets({name: self.whole_bytes(name) for name in self.names}, bucket_bytes(task))
        senders = place.trainers if task.options.get("senders") == "all" else 1
        self.lines = [self.group([sender, *place.ends]) for sender in range(senders)]

    def send(self, version: int) -> None:
        """The buckets that are this trainer's to send; it gathers all of them with the others."""
        sending: deque[tuple[Any, Tensor]] = deque()
        for number, names in enumerate(self.buckets):
            sender = number % len(self.lines)
            if self.trainers is None and sender != self.place.rank:
                continue
            whole = self.gathered(names)
            if sender == self.place.rank:
                packed = torch.cat(whole)
                work = dist.broadcast(packed, src=sender, group=self.lines[sender], async_op=True)
                sending.append((work, packed))
            while len(sending) > FLIGHT:
                sending.popleft()[0].wait()
        for work, _ in sending:
            work.wait()

    def receive(self, version: int) -> None:
        """Unpacks each as it comes."""
        coming: deque[tuple[Any, Tensor, list[str]]] = deque()
        for number, names in enumerate(self.buckets):
            sender = number % len(self.lines)
            packed = torch.empty(sum(self.whole_bytes(name) for name in names), dtype=torch.uint8)
            work = dist.broadcast(packed, src=sender, group=self.lines[sender], async_op=True)
            coming.append((work, packed, names))
            if len(coming) > FLIGHT * len(self.lines):
                self.unpack(*coming.popleft())
        for each in coming:
            self.unpack(*each)

    @staticmethod
    def choices(place: Place) -> list[dict[str, Any]]:
        """Sizes of buckets, and one sender or all trainers."""
        senders = ["one"] if place.trainers == 1 else ["one", "all"]
        return [{"bucket_mib": size, "senders": which} for which in senders for size in SIZES]


def bucket_bytes(task: Task) -> int:
    """How large a bucket is to be."""
    return int(float(task.options.get("bucket_mib", 4)) * MIB)


def buckets(sizes: dict[str, int], most: int) -> list[list[str]]:
    """Tensors in their order, in buckets of so many bytes at most; a larger tensor has one of its own."""
    made: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if made[-1] and filled + size > most:
            made.append([])
            filled = 0
        made[-1].append(name)
        filled += size
    return made
