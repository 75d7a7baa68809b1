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

    With `per_version`, the batches that trainers learn from in each version, those taken since the newest
    version take room as well. With room for n + 1 versions no batch is then more than n versions old when
    its turn comes, unless a rollout is slow (AReaL's bound: Fu et al. 2025, arXiv:2505.24298, section 5.1).
    Where all tickets are with rollouts that are slow, and a trainer waits for long (`waiting` counts those),
    others get tickets beyond the capacity. Nothing is begun for versions after the `last`.

    `published` are the digests of versions that were told: samples of other weights are nobody's samples
    then, whatever number they bear.
    """

    def __init__(self, capacity: int, per_version: int = 0, last: int | None = None):
        self.capacity, self.per_version, self.last = capacity, per_version, last
        self.batches: deque[Batch] = deque()
        self.tickets = 0
        self.taken = 0
        self.waiting = 0
        self.oldest: int | None = None
        self.published: dict[int, str] = {}
        self.stale: list[int] = []
        self.foreign: list[int] = []

    @property
    def has_room(self) -> bool:
        """Whether another batch is wanted."""
        if self.per_version > 0 and self.waiting > 0 and not self.batches:
            return True
        comes = self.last is None or self._turn <= self.last
        return comes and self._begun < self.capacity

    @property
    def _begun(self) -> int:
        """Batches that were begun, without those of the trainers' former versions."""
        return self.tickets + len(self.batches) + self.taken

    @property
    def _turn(self) -> int:
        """The version at which trainers would learn from a batch begun now."""
        return max(self.published, default=0) + self._begun // self.per_version

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
        self.taken = 0

    def take_ticket(self) -> int:
        """Promises a batch. Which version it has to have at least, to be fresh when its turn comes."""
        floor = 0
        if self.per_version:
            behind = self.capacity // self.per_version - 1
            floor = max(0, min(self._turn - behind, max(self.published, default=0)))
        self.tickets += 1
        return floor

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
        if not self.batches:
            return None
        self.taken += self.per_version > 0
        return self.batches.popleft()

    def _drop_stale(self) -> None:
        if self.oldest is None:
            return
        kept = [batch for batch in self.batches if batch.version >= self.oldest]
        self.stale += [len(batch.answers) for batch in self.batches if batch.version < self.oldest]
        self.batches = deque(kept)
