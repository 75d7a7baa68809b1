"""Buckets to the first rollout of each group, and from that on to the rollouts beside it."""

import math
from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..model import Memory
from .collective import Collective
from .packed import FLIGHT, SIZES, bucket_bytes, buckets
from .way import Place, Task


class TwoLevel(Collective):
    """Two broadcasts for a bucket, the second of them while the first of the next bucket is under way."""

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        self.buckets = buckets({name: self.whole_bytes(name) for name in self.names}, bucket_bytes(task))
        split = groups(place.ends, place.per_host)
        self.above = self.group([0, *(each[0] for each in split)])
        lines = [self.group(each) if len(each) > 1 else None for each in split]
        mine = [number for number, each in enumerate(split) if place.rank in each]
        self.first = split[mine[0]][0] if mine else 0
        self.below = lines[mine[0]] if mine else None

    def send(self, version: int) -> None:
        """To the first of each group."""
        sending: deque[tuple[Any, Tensor]] = deque()
        for names in self.buckets:
            whole = self.gathered(names)
            if self.place.rank == 0:
                packed = torch.cat(whole)
                sending.append((dist.broadcast(packed, src=0, group=self.above, async_op=True), packed))
            while len(sending) > FLIGHT:
                sending.popleft()[0].wait()
        for work, _ in sending:
            work.wait()

    def receive(self, version: int) -> None:
        """The first of a group passes each bucket on."""
        coming: deque[tuple[Any, Tensor, list[str]]] = deque()
        for names in self.buckets:
            packed = torch.empty(sum(self.whole_bytes(name) for name in names), dtype=torch.uint8)
            if self.place.rank == self.first:
                dist.broadcast(packed, src=0, group=self.above)
            work = None
            if self.below is not None:
                work = dist.broadcast(packed, src=self.first, group=self.below, async_op=True)
            coming.append((work, packed, names))
            while len(coming) > FLIGHT:
                self.unpack(*coming.popleft())
        for each in coming:
            self.unpack(*each)

    @staticmethod
    def choices(place: Place) -> list[dict[str, Any]]:
        """Sizes of buckets."""
        return [{"bucket_mib": size} for size in SIZES]


def groups(ends: list[int], per_host: int) -> list[list[int]]:
    """Rollouts' ranks by the host that they share; with a host for each, by the square root of them."""
    if per_host > 1:
        hosts: dict[int, list[int]] = {}
        for rank in ends:
            hosts.setdefault(rank // per_host, []).append(rank)
        return list(hosts.values())
    each = max(1, math.isqrt(len(ends)))
    return [ends[first : first + each] for first in range(0, len(ends), each)]
