"""What a rank has of a parameter that ZeRO-3 has flattened and cut."""

from dataclasses import dataclass
from typing import Any

import torch

from ... import _core


@dataclass(frozen=True)
class Piece:
    """`count` elements of a flattened tensor of this shape, from `start` on, and the memory that they are in;
    what is behind them there is padding."""

    shape: tuple[int, ...]
    start: int
    count: int
    memory: torch.Tensor


def is_cut(parameter: Any) -> bool:
    """Whether ZeRO-3 has the parameter."""
    return hasattr(parameter, "ds_id")


def piece(name: str, parameter: Any) -> Piece:
    """What this rank has of a parameter. Raises `Misuse` if that is not in memory, or no plain piece."""
    memory = parameter.ds_tensor
    if memory is None:
        raise _core.Misuse(f"{name} has not been partitioned yet; read the layout after deepspeed.initialize")
    if getattr(memory, "final_location", None) == "nvme":
        raise _core.Misuse(
            f"{name} is offloaded to NVMe, where no rollout can read it; offload parameters to the CPU "
            "(offload_param: device cpu), or publish a module of its own that "
            "deepspeed.zero.GatheredParameters fills"
        )
    if hasattr(memory, "ds_quant_scale"):
        raise _core.Misuse(
            f"{name} is quantised (zero_quantized_nontrainable_weights): its bytes are codes, not weights; "
            "train without it"
        )
    group, size = parameter.ds_process_group, int(memory.ds_numel)
    if memory.numel() < size or size * group.size() < parameter.ds_numel:
        raise _core.Misuse(
            f"{name}: {group.size()} pieces of {size} elements are not the {parameter.ds_numel} of the "
            "parameter (MiCS has other groups); shard with plain ZeRO-3"
        )
    start = min(size * group.rank(), parameter.ds_numel)
    count = min(size, parameter.ds_numel - start)
    return Piece(tuple(parameter.ds_shape), start, count, memory.detach())
