"""What the trainer's loop asks of the ranks that train, however they share the model."""

from collections.abc import Callable
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

import weightcast as wc

from ..rl_loop.backlog import Batch
from .lessons import Objective
from .models import Outputs
from .settings import LoopSettings
from .stamp import Piece


class Learner(Protocol):
    """One rank of the trainers. All ranks make the same calls."""

    #: Ranks that hold one replica together; None: this one alone.
    group: dist.ProcessGroup | None
    #: Whether the batch that this rank learns from counts as its own: it is not also another rank's.
    leads: bool

    def replica(self) -> wc.Replica:
        """Which shard of which replica of the policy this rank is."""

    def layout(self, beside: bool) -> wc.Layout:
        """What this rank holds of the policy, in place."""

    def pieces(self) -> list[Piece]:
        """The same for the digest: everything once over all ranks of a replica."""

    def receive(self, get: Callable[[], Batch]) -> Batch:
        """The batch that this rank learns from; ranks that learn from one together get it once."""

    def look(self, tokens: Tensor) -> Outputs:
        """What the model says of tokens, to learn nothing from."""

    def descend(self, tokens: Tensor, objective: Objective) -> None:
        """Gradients of a loss, averaged over the ranks."""

    def step(self) -> None:
        """A step of the optimizer with these gradients, which are gone then. Changes weights."""


def learner_of(settings: LoopSettings) -> Learner:
    """The learner that the settings ask for."""
    match settings.trainer:
        case "ddp":
            from .ddp import DDP

            return DDP(settings)
        case "fsdp2":
            from .fsdp2 import FSDP2

            return FSDP2(settings)
        case _:
            from .megatron import Megatron

            return Megatron(settings)
