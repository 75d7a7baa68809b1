"""Which shard of which replica a rank of DeepSpeed is."""

from typing import Any

from torch import distributed

from ... import _core
from ...replica import Replica
from .pieces import is_cut


def refuse(engine: Any) -> None:
    """Raises `Misuse` for an engine whose ranks have other parameters than those of its module."""
    problem = None
    if getattr(engine, "pipeline_parallelism", False):
        problem = "is a pipeline, whose stages number their layers by themselves"
    elif getattr(engine, "has_moe_layers", False):
        problem = "has layers of deepspeed.moe, whose experts have names of one rank"
    elif _size(engine, "autotp_size") > 1 or _model_parallel(getattr(engine, "mpu", None)) > 1:
        problem = "is tensor-parallel, and does not say here of which tensor a rank has what"
    if problem is not None:
        raise _core.Misuse(
            f"this engine {problem}; describe it by hand, tensor by tensor: "
            "Layout.add(parameter, [weightcast.part(...)])"
        )


def _size(owner: Any, name: str) -> int:
    size = getattr(owner, name, None)
    return 1 if size is None else int(size())


def _model_parallel(mpu: Any) -> int:
    names = ("get_model_parallel_world_size", "get_tensor_model_parallel_world_size")
    return max(_size(mpu, name) for name in names)


def cutting_group(engine: Any) -> Any:
    """The group over whose ranks ZeRO-3 cuts the parameters of an engine; none with another stage."""
    groups = [p.ds_process_group for p in engine.module.parameters() if is_cut(p)]
    return groups[0] if groups else None


def replica(name: str, engine: Any, **labels: Any) -> Replica:
    """Which shard of which replica this rank is: with ZeRO-3, of one that all ranks are together; else each
    rank is a replica `name-0`, `name-1`, ... of its own. `labels` go to `Replica`."""
    refuse(engine)
    world = distributed.get_world_size() if distributed.is_initialized() else 1
    group = cutting_group(engine)
    if group is None:
        return Replica(f"{name}-{distributed.get_rank()}" if world > 1 else name, **labels)
    if group.size() != world:
        raise _core.Misuse(
            f"ZeRO-3 cuts over {group.size()} of {world} ranks; give each a weightcast.Replica by hand: "
            "shards of one replica for ranks of one group"
        )
    return Replica(name, shard=group.rank(), num_shards=world, **labels)
