"""Pieces through all rollouts, one after the other, as NCCL's ring moves a broadcast: no link carries more
than the model once, whatever the number of rollouts."""

from typing import Any

import torch.distributed as dist
from torch import Tensor

from .collective import Collective

CHUNK = 1 << 20
"""Bytes of a piece at most: how far each rollout is behind the one before."""
AHEAD = 8
"""Pieces that a rollout waits for at a time."""


class Chain(Collective):
    """Send and receive of gloo, from the first trainer to the first rollout, from that to the next."""

    def send(self, version: int) -> None:
        """Gathers each tensor if there is need to, and sends it on its way."""
        following = self.place.ends[0]
        sending: list[Any] = []
        for name in self.names:
            (whole,) = self.gathered([name])
            if self.place.rank == 0:
                sending += [dist.isend(part, following) for part in parts(whole)]
        for work in sending:
            work.wait()

    def receive(self, version: int) -> None:
        """Passes each piece on as soon as it is here."""
        me, ends = self.place.rank, self.place.ends
        earlier, following = (0 if me == ends[0] else me - 1), (None if me == ends[-1] else me + 1)
        landings = {name: self.landing(name) for name in self.names}
        pieces = [part for whole in landings.values() for part in parts(whole)]
        coming = [dist.irecv(part, earlier) for part in pieces[:AHEAD]]
        sending: list[Any] = []
        for number, part in enumerate(pieces):
            coming[number].wait()
            if number + AHEAD < len(pieces):
                coming.append(dist.irecv(pieces[number + AHEAD], earlier))
            if following is not None:
                sending.append(dist.isend(part, following))
        for work in sending:
            work.wait()
        for name, whole in landings.items():
            self.landed(name, whole)


def parts(whole: Tensor) -> list[Tensor]:
    """A tensor's bytes in pieces."""
    return list(whole.split(CHUNK))
