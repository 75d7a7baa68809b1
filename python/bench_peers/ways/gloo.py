"""torch.distributed over gloo: collectives of CPU tensors."""

from collections import deque
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench_rl.ways.packed import buckets

from .way import Place, Way

BUCKET = 4 << 20
"""Bytes of a bucket."""
FLIGHT = 2
"""Buckets on their way at once: gloo has two threads for a group."""
IN_FLIGHT = 8
"""Tensors on their way at once."""


class Gloo(Way):
    """A process group of all."""

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        self.store: Any = None
        self.flat = [tensor.view(torch.uint8).view(-1) for tensor in tensors.values()]

    def offer(self) -> int:
        """The store at which ranks meet."""
        wait = timedelta(seconds=self.place.timeout)
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=wait)
        return int(self.store.port)

    def join(self, offered: int) -> None:
        """A client of it."""
        wait = timedelta(seconds=self.place.timeout)
        self.store = dist.TCPStore("127.0.0.1", offered, is_master=False, timeout=wait)

    def ready(self) -> None:
        """All join the group."""
        wait, world = timedelta(seconds=self.place.timeout), self.place.readers + 1
        dist.init_process_group(
            "gloo", store=self.store, rank=self.place.rank, world_size=world, timeout=wait
        )

    def close(self) -> None:
        """Leaves the group."""
        dist.destroy_process_group()


class Tensors(Gloo):
    """A broadcast of each tensor, several on their way."""

    def send(self, version: int) -> None:
        """In place."""
        works: deque[Any] = deque()
        for tensor in self.flat:
            works.append(dist.broadcast(tensor, src=0, async_op=True))
            if len(works) >= IN_FLIGHT:
                works.popleft().wait()
        for work in works:
            work.wait()

    receive = send


class Packed(Gloo):
    """A broadcast of each bucket, into which the sender packs, and out of which readers unpack."""

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        pieces = [piece for flat in self.flat for piece in flat.split(BUCKET)]
        numbers = {str(n): piece.numel() for n, piece in enumerate(pieces)}
        self.buckets = [[pieces[int(n)] for n in names] for names in buckets(numbers, BUCKET)]
        # Kept: memory that is asked for anew costs more than a copy.
        self.free = [torch.empty(BUCKET, dtype=torch.uint8) for _ in range(FLIGHT)]

    def send(self, version: int) -> None:
        """Packs one while others are on their way."""
        self._all(before=lambda packed, parts: torch.cat(parts, out=packed), after=None)

    def receive(self, version: int) -> None:
        """Unpacks one while others are on their way."""
        self._all(before=None, after=unpack)

    def _all(self, before: Any, after: Any) -> None:
        works: deque[tuple[Any, Tensor, list[Tensor]]] = deque()

        def landed() -> None:
            work, packed, parts = works.popleft()
            work.wait()
            if after:
                after(packed, parts)

        for number, parts in enumerate(self.buckets):
            if len(works) == FLIGHT:
                landed()
            packed = self.free[number % FLIGHT][: sum(part.numel() for part in parts)]
            if before:
                before(packed, parts)
            works.append((dist.broadcast(packed, src=0, async_op=True), packed, parts))
        while works:
            landed()


def unpack(packed: Tensor, parts: list[Tensor]) -> None:
    """Copies a bucket out."""
    at = 0
    for part in parts:
        part.copy_(packed[at : at + part.numel()])
        at += part.numel()
