"""FSDP1: ranks hold ranges of flat parameters, which are many parameters one behind the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp

from .. import _core
from ..memory import TORCH
from .tensors import join


@dataclass(frozen=True)
class FlatPart:
    """A parameter that FSDP1 has flattened, and what this rank holds of it."""

    #: Its name, with the parts that wrappers add.
    name: str
    #: Its shape and type; no memory.
    whole: torch.Tensor
    #: The first element that lies here, and all that do.
    first: int
    memory: torch.Tensor


@dataclass(frozen=True)
class Flat:
    """A flat parameter of a module."""

    owner: nn.Module
    parts: tuple[FlatPart, ...]
    #: Its group, and the global ranks of that, among which it is cut if it is.
    group: Any
    ranks: tuple[int, ...]
    is_cut: bool
    #: Which copy of it this rank's is, of how many: HYBRID_SHARD has several.
    copy: tuple[int, int]
    #: By `id`, the parameters of the module that stand for it.
    standing: frozenset[int]

    @property
    def holding(self) -> tuple[int, int]:
        """Which of how many pieces this rank holds."""
        return (self.ranks.index(dist.get_rank()), len(self.ranks)) if self.is_cut else (0, 1)


def memory_of(owner: Any) -> torch.Tensor:
    """The memory of a flat parameter that the optimizer changes; it stays while a forward pass has gathered
    the parameter."""
    flat = owner._handle.flat_param
    return getattr(flat, "_local_shard", flat.data).detach()


def flats(module: nn.Module) -> list[Flat]:
    """The flat parameters of a module, in its order."""
    return [
        _flat(path, owner, owner._handle)
        for path, owner in module.named_modules()
        if isinstance(owner, fsdp.FullyShardedDataParallel) and owner._handle is not None
    ]


def _flat(path: str, owner: Any, handle: Any) -> Flat:
    flat = handle.flat_param
    between = getattr(owner, "_inter_node_pg", None)
    hybrid = handle.uses_sharded_strategy and between is not None
    copy = (dist.get_rank(between), dist.get_world_size(between)) if hybrid else (0, 1)
    standing = [flat, *(flat._params or ()), *(getattr(flat, "_shared_params", None) or ())]
    return Flat(
        owner,
        tuple(_parts(path, owner, flat)),
        handle.process_group,
        tuple(dist.get_process_group_ranks(handle.process_group)),
        handle.uses_sharded_strategy,
        copy,
        frozenset(map(id, standing)),
    )


def _parts(path: str, owner: Any, flat: Any) -> Iterator[FlatPart]:
    memory = memory_of(owner)
    described = zip(flat._fqns, flat._shapes, flat._contiguities, flat._param_extensions, strict=True)
    lying = zip(described, flat._shard_param_infos, strict=True)
    for (fqn, shape, contiguous, extension), info in lying:
        name = join(path, fqn)
        _refuse(name, memory, contiguous, extension)
        first, offset, count = info.intra_param_start_idx, info.offset_in_shard, info.numel_in_shard
        whole = torch.empty(shape, dtype=memory.dtype, device="meta")
        if info.in_shard:
            yield FlatPart(name, whole, first, memory.narrow(0, offset, count))
        else:
            yield FlatPart(name, whole, 0, memory[:0])


def _refuse(name: str, memory: torch.Tensor, contiguous: bool, extension: Any) -> None:
    reason = None
    if extension is not None:
        reason = "is cut by FSDP1 over another way of sharding, and says here only what FSDP1 cut"
    elif not contiguous:
        reason = "was not contiguous when FSDP1 flattened it, so its elements lie in another order"
    elif str(memory.dtype).removeprefix("torch.") not in TORCH:
        reason = f"has dtype {memory.dtype}, which is none of those of a checkpoint"
    if reason is not None:
        raise _core.Misuse(f"{name} {reason}; shard with torch.distributed.fsdp.fully_shard (FSDP2)")
