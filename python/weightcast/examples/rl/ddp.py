"""Trainers that hold the whole model each, and average gradients (DistributedDataParallel)."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import weightcast as wc
import weightcast.torch as wct

from ..rl_loop.backlog import Batch
from .lessons import Objective
from .models import ActorCritic, Outputs, build
from .settings import LoopSettings
from .stamp import Piece

GRADIENT = 1.0
"""Gradients are scaled down to this norm."""


class Torch:
    """A rank that trains a module of torch, whose ranks each learn from batches of their own."""

    leads = True

    def __init__(self, module: nn.Module, actor: ActorCritic, learning_rate: float):
        self.module, self.actor = module, actor
        self.optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate, betas=(0.9, 0.95))

    def layout(self, beside: bool) -> wc.Layout:
        """What this rank holds of the policy, in place; the value head is no engine's concern."""
        return wct.layout(self.actor.policy, buffers=False, beside=beside)

    def receive(self, get: Callable[[], Batch]) -> Batch:
        """A batch of its own."""
        return get()

    @torch.no_grad()
    def look(self, tokens: Tensor) -> Outputs:
        """What the model says of tokens, to learn nothing from."""
        found: Outputs = self.module(tokens)
        return found

    def descend(self, tokens: Tensor, objective: Objective) -> None:
        """Gradients of a loss, averaged over the ranks."""
        objective(self.module(tokens)).backward()

    def step(self) -> None:
        """Clips the gradients, steps, and forgets them."""
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), GRADIENT)
        self.optimizer.step()
        self.optimizer.zero_grad()


class DDP(Torch):
    """Every rank is a replica, `trainer-0`, `trainer-1`, ...: a rollout reads from any of them."""

    group: dist.ProcessGroup | None = None

    def __init__(self, settings: LoopSettings):
        actor = ActorCritic(build(settings), settings.algorithm == "ppo")
        super().__init__(DistributedDataParallel(actor), actor, settings.learning_rate)

    def replica(self) -> wc.Replica:
        """A whole one."""
        return wct.replica("trainer", self.module)

    def pieces(self) -> list[Piece]:
        """All parameters, whole."""
        return [Piece(name, p) for name, p in self.actor.policy.named_parameters()]
