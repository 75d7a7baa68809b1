"""The batches that wait for trainers, as plain decisions: no socket, thread or clock.

A rollout takes a ticket before it generates, and there are as many tickets and waiting batches as
there is room: that is the back-pressure. A batch that trainers would refuse is dropped and counted
as soon as that is known, and its room is free again.
"""

from collections import deque
from typing import NamedTuple

import numpy as np


class Batch(NamedTuple):
    """Samples drawn with one version: int64 `[rows, tokens]`, float32 log-probabilities.

    `digest` is that of the weights which drew them, where the program knows one.
    """

    version: int
    prompts: np.ndarray
    answers: np.ndarray
    logprobs: np.ndarray
    digest: str = ""


class Backlog:
    """Batches and tickets, `capacity` of them together.

    `published` are the digests of versions, once trainers have told any: samples of other weights
    are nobody's samples then, whatever number they bear.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.batches: deque[Batch] = deque()
        self.tickets = 0
        self.oldest: int | None = None
        self.published: dict[int, str] = {}
        self.stale: list[int] = []
        self.foreign: list[int] = []

    @property
    def has_room(self) -> bool:
        """Whether another batch is wanted."""
        return self.tickets + len(self.batches) < self.capacity

    @property
    def dropped(self) -> int:
        """Batches that were dropped as too old."""
        return len(self.stale)

    @property
    def dropped_samples(self) -> int:
        """Their rows."""
        return sum(self.stale)

    @property
    def foreign_samples(self) -> int:
        """Rows of batches whose digest is not that of the version they claim."""
        return sum(self.foreign)

    def publish(self, version: int, digest: str) -> None:
        """Trainers are about to publish a version."""
        self.published[version] = digest

    def take_ticket(self) -> None:
        """Promises a batch."""
        self.tickets += 1

    def give_back(self, tickets: int) -> None:
        """Tickets whose batches will not come."""
        self.tickets -= tickets

    def put(self, batch: Batch) -> None:
        """Takes in the batch that a ticket was given for."""
        self.tickets -= 1
        if self.published and self.published.get(batch.version) != batch.digest:
            self.foreign.append(len(batch.answers))
        else:
            self.batches.append(batch)
            self._drop_stale()

    def require(self, min_version: int) -> None:
        """Trainers take nothing older from now on; a trainer that lags behind changes nothing."""
        self.oldest = min_version if self.oldest is None else max(self.oldest, min_version)
        self._drop_stale()

    def get(self) -> Batch | None:
        """The batch that has waited longest, if any waits."""
        return self.batches.popleft() if self.batches else None

    def _drop_stale(self) -> None:
        if self.oldest is None:
            return
        kept = [batch for batch in self.batches if batch.version >= self.oldest]
        self.stale += [len(batch.answers) for batch in self.batches if batch.version < self.oldest]
        self.batches = deque(kept)
