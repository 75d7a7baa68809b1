"""Trainers that hold a share of every parameter each (PyTorch's `fully_shard`)."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import weightcast as wc
import weightcast.torch as wct

from .ddp import Torch
from .models import ActorCritic, build
from .settings import LoopSettings
from .stamp import Piece


class FSDP2(Torch):
    """All ranks are the shards of one replica; a layer is gathered while it computes."""

    def __init__(self, settings: LoopSettings):
        actor = ActorCritic(build(settings), settings.algorithm == "ppo")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in actor.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(actor, mesh=mesh)
        self.group = mesh.get_group()
        super().__init__(actor, actor, settings.learning_rate)

    def replica(self) -> wc.Replica:
        """A shard of the one replica."""
        return wct.replica("trainer", self.actor.policy)

    def pieces(self) -> list[Piece]:
        """The rows of each parameter that this rank has; torch gives each rank `ceil(rows / ranks)`."""
        found, rank, ranks = [], dist.get_rank(), dist.get_world_size()
        for name, parameter in self.actor.policy.named_parameters():
            rows, *others = parameter.shape
            first = min(rank * -(-rows // ranks), rows)
            start = first * parameter[:1].numel()
            found.append(Piece(name, parameter.to_local(), start))
        return found
