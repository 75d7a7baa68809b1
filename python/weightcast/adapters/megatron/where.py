"""Which shard of which replica a rank of Megatron is."""

from dataclasses import dataclass
from math import gcd
from typing import Any

from ... import _core
from ...replica import Replica
from .held import chunks


@dataclass(frozen=True)
class InGroup:
    """A rank's place in one of Megatron's groups, and the group's size."""

    at: int
    of: int


@dataclass(frozen=True)
class Stand:
    """Where a rank stands. `data` is data and context parallelism together; `expert_data` is the data
    parallelism of experts, and none without experts."""

    tensor: InGroup
    pipeline: InGroup
    data: InGroup
    expert_data: InGroup | None = None

    def place(self) -> "Place":
        """Of which copy of the weights the rank is which shard.

        Ranks that are data-parallel have copies of everything but experts, and ranks of one expert data
        parallel group those of experts. A copy is as few ranks as have all of both.
        """
        copies = self.data.of if self.expert_data is None else gcd(self.data.of, self.expert_data.of)
        each = self.data.of // copies
        copy, within = divmod(self.data.at, each)
        if self.expert_data is not None and self.expert_data.at // (self.expert_data.of // copies) != copy:
            raise _core.Misuse(
                "this order of Megatron's parallel groups mixes the copies of experts with those of other "
                "weights; give each rank a weightcast.Replica by hand: shards of one replica for ranks that "
                "together have everything"
            )
        stage = each * self.tensor.of
        shard = self.pipeline.at * stage + within * self.tensor.of + self.tensor.at
        return Place(copy, copies, shard, self.pipeline.of * stage)


@dataclass(frozen=True)
class Place:
    """A copy of the weights, of how many; a shard of the copy, of how many."""

    copy: int
    copies: int
    shard: int
    shards: int


def replica(name: str, model: Any, **labels: Any) -> Replica:
    """Which shard of which replica this rank is, by Megatron's parallel groups: those of the model's
    `pg_collection`, else of `megatron.core.parallel_state`.

    Copies of the weights, which data and context parallelism make, are replicas `name-0`, `name-1`, ...;
    the ranks of tensor, pipeline and expert parallelism are the shards of one. `labels` go to `Replica`.
    """
    place = _stand(chunks(model)[0]).place()
    if place.copies > 1:
        name = f"{name}-{place.copy}"
    return Replica(name, shard=place.shard, num_shards=place.shards, **labels)


def groups(model: Any) -> list[Any]:
    """Process groups that, one after the other, reach all ranks of a copy and no other; none where Megatron
    has no such groups: with experts of which there are fewer copies than ranks of data parallelism."""
    chunk = chunks(model)[0]
    stand = _stand(chunk)
    try:
        copies = stand.place().copies
    except _core.Misuse:  # `replica` says so
        return []
    if copies == stand.data.of:
        return [_group(chunk, name) for name in ("tp", "pp")]
    return [_group(chunk, name) for name in ("tp", "dp_cp", "pp")] if copies == 1 else []


def _stand(chunk: Any) -> Stand:
    has_experts = getattr(chunk.config, "num_moe_experts", None) is not None
    return Stand(
        tensor=_in_group(chunk, "tp"),
        pipeline=_in_group(chunk, "pp"),
        data=_in_group(chunk, "dp_cp"),
        expert_data=_in_group(chunk, "expt_dp") if has_experts else None,
    )


def _in_group(chunk: Any, which: str) -> InGroup:
    """A rank's place in one of the groups."""
    group = _group(chunk, which)
    return InGroup(group.rank(), group.size())


def _group(chunk: Any, which: str) -> Any:
    group = getattr(getattr(chunk, "pg_collection", None), which, None)
    if group is None:
        from megatron.core.process_groups_config import ProcessGroupCollection

        group = getattr(ProcessGroupCollection.use_mpu_process_groups([which]), which)
    if group is None:
        raise _core.Misuse(
            f"neither the model's pg_collection nor megatron.core.parallel_state has a group {which}; give "
            "this rank a weightcast.Replica by hand"
        )
    return group
