"""What a rank of Megatron holds, as its `sharded_state_dict` says."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ... import _core
from ...torch.tensors import Held, held
from ..naming.nearest import listed

#: Layers and experts numbered over the whole model, and each a tensor of its own.
METADATA = {"singleton_local_shards": True, "non_homogeneous_layers": True}


def chunks(model: Any) -> list[nn.Module]:
    """The GPT models of a rank, without what they are wrapped in."""
    found = [_unwrapped(one)[-1] for one in _listed(model)]
    for one in found:
        if not hasattr(one, "sharded_state_dict") or not hasattr(one, "config"):
            raise _core.Misuse(
                f"{type(one).__name__} is no model of Megatron-core: it has no sharded_state_dict and "
                "config; weightcast.torch.layout is for plain modules"
            )
    if not found:
        raise _core.Misuse("no model: this rank's list of model chunks is empty")
    return found


def wrappers(model: Any) -> list[nn.Module]:
    """What the models of a rank are wrapped in."""
    return [wrapper for one in _listed(model) for wrapper in _unwrapped(one)[:-1]]


def _listed(model: Any) -> list[Any]:
    return list(model) if isinstance(model, list | tuple | nn.ModuleList) else [model]


def _unwrapped(one: Any) -> list[Any]:
    """A model behind its wrappers, the outermost first."""
    inner = getattr(one, "module", None)
    if hasattr(one, "decoder") or not isinstance(inner, nn.Module):
        return [one]
    return [one, *_unwrapped(inner)]


def sharded(chunk: Any) -> list[Any]:
    """The `ShardedTensor`s of a model, each over memory of a parameter or buffer of the model."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories

    metadata = dict[str, Any](METADATA)
    group = getattr(getattr(chunk, "pg_collection", None), "dp_cp", None)
    if group is not None:
        metadata["dp_cp_group"] = group
    state = chunk.sharded_state_dict(metadata=metadata)
    apply_factories(state)
    return [one for one in _leaves(state) if isinstance(one, ShardedTensor)]


def _leaves(state: Any) -> Iterator[Any]:
    if isinstance(state, dict | list):
        for one in state.values() if isinstance(state, dict) else state:
            yield from _leaves(one)
    else:
        yield state


def refuse(shard: Any) -> None:
    """Raises `Misuse` for a shard that is no box of a tensor of its own."""
    if shard.prepend_axis_num:
        raise _core.Misuse(
            f"{shard.key}: this Megatron-core numbers layers or experts by axes, not by names; 0.16 or newer "
            "is needed"
        )
    if shard.flattened_range is not None:
        raise _core.Misuse(
            f"{shard.key}: a piece of a flattened parameter (Megatron-FSDP); shard with Megatron's tensor, "
            "pipeline and expert parallelism, or with FSDP2 and weightcast.torch.layout"
        )


class Owners:
    """The parameters and persistent buffers of a model, by where they lie: whose memory is a view, and
    what has been seen of each."""

    def __init__(self, chunk: nn.Module) -> None:
        self.all = [one for one in held(chunk, buffers=True) if one.tensor.numel()]
        self._sorted = sorted(self.all, key=lambda one: one.tensor.data_ptr())
        self._starts = [one.tensor.data_ptr() for one in self._sorted]
        self._seen: dict[str, set[tuple[int, int]]] = {one.name: set() for one in self.all}

    def see(self, key: str, view: torch.Tensor) -> None:
        """Notes a view; raises `Misuse` if its memory is that of no tensor of the model."""
        start, size = view.data_ptr(), view.numel() * view.element_size()
        owner = self._owner(start, size)
        if owner is None:
            raise _core.Misuse(
                f"{key}: Megatron hands out a copy of this, not the parameter's memory (experts of the "
                "legacy GroupedMLP are transposed, quantised parameters dequantised); use TEGroupedMLP or "
                "SequentialMLP, and parameters of plain types"
            )
        self._seen[owner.name].add((start, size))

    def _owner(self, start: int, size: int) -> Held | None:
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        one = self._sorted[at]
        end = one.tensor.data_ptr() + one.tensor.numel() * one.tensor.element_size()
        return one if start + size <= end else None

    def check(self) -> None:
        """Raises `LayoutMismatch` if some of a tensor was not seen."""
        missing = [one.name for one in self.all if self._bytes(one.name) != _size(one.tensor)]
        if missing:
            first = f"{len(missing)} tensors of the model are not, or not wholly, in its sharded_state_dict:"
            last = "a module of the model needs a sharded_state_dict that has them"
            raise _core.LayoutMismatch("\n".join([first, *listed(missing), last]))

    def _bytes(self, name: str) -> int:
        return sum(size for _, size in self._seen[name])


def _size(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def slots(owners: Iterable[Owners]) -> Iterator[Held]:
    """Whose attributes the tensors are."""
    for one in owners:
        yield from one.all
