"""What a way of moving weights has to do, and what it is told."""

from dataclasses import dataclass, field
from typing import Any

from ..model import Memory, Piece, Shapes, share


@dataclass(frozen=True)
class Place:
    """Who a process is, and where it finds the others. In `rank`, trainers come first, then rollouts."""

    role: str
    index: int
    rank: int
    trainers: int
    rollouts: int
    rollout_tp: int
    trainer: str
    shapes: Shapes
    address: str
    interface: str
    lane: str
    store: tuple[str, int]
    servers: dict[str, str]
    disk: str
    per_host: int
    timeout: float

    @property
    def world(self) -> int:
        """All processes."""
        return self.trainers + self.rollouts * self.rollout_tp

    @property
    def ends(self) -> list[int]:
        """Ranks of the rollouts."""
        return list(range(self.trainers, self.world))

    @property
    def replica(self) -> str:
        """What it is a shard of: a rollout, a trainer of DDP, or all trainers of FSDP2."""
        if self.role == "rollout":
            return f"rollout-{self.index // self.rollout_tp}"
        return f"trainer-{self.index}" if self.trainer == "ddp" else "trainer"

    @property
    def shard(self) -> tuple[int, int]:
        """Which shard of that, of how many."""
        if self.role == "rollout":
            return self.index % self.rollout_tp, self.rollout_tp
        return (0, 1) if self.trainer == "ddp" else (self.index, self.trainers)

    def pieces(self) -> list[Piece]:
        """What it holds."""
        return share(self.shapes, *self.shard, vectors=self.role == "trainer")


@dataclass(frozen=True)
class Task:
    """One opening of a way: a name that no other has, and options of the way."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


class Way:
    """One way of moving weights, in one process. All processes make it, and close it, together.

    `memory` is what bytes are taken from, or are to land in.
    """

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        self.place, self.memory, self.task = place, memory, task

    def send(self, version: int) -> None:
        """A trainer's part. When it returns, the memory may be changed."""
        raise NotImplementedError

    def wait(self, version: int) -> None:
        """A rollout's: returns when it has to stand still for the version. It generates until then."""

    def receive(self, version: int) -> None:
        """A rollout's: returns when all of the version is in memory."""
        raise NotImplementedError

    def close(self) -> None:
        """Lets go of everything."""

    @staticmethod
    def lacking(place: Place) -> str | None:
        """Why this way cannot run there; None if it can."""
        return None

    @staticmethod
    def choices(place: Place) -> list[dict[str, Any]]:
        """Options of which a short search takes the best; without any there is no search."""
        return []
