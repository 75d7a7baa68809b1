"""Parameters that are not what they look like: known by the marks that their libraries leave.

Their shapes or bytes are those of one rank, with nothing that says which slice of what; published as
they are, a half would pass for the whole.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .. import _core
from ..memory import TORCH
from .tensors import local_of


def refuse(name: str, owner: nn.Module, tensor: torch.Tensor) -> None:
    """Raises `Misuse` for a parameter that cannot be described by what is seen of it."""
    for found, what, advice in MARKS:
        if found(name, owner, tensor):
            raise _core.Misuse(f"{name} {what}; {advice}")
    local = local_of(tensor)
    if type(local).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise _core.Misuse(
            f"{name}: a {type(local).__name__}, which is made of other tensors (torchao quantises so) and "
            "has no bytes of its own; publish the weights that it was made of, as they were before quantize_ "
            "(Layout.quantise publishes them in FP8). Training in FP8 and for quantisation (QAT) keeps them"
        )
    if str(tensor.dtype).removeprefix("torch.") not in TORCH:
        raise _core.Misuse(
            f"{name} has dtype {tensor.dtype}, which is none of those of a checkpoint; leave it out "
            "by `rename`, or all buffers by `buffers=False`"
        )


def _flat(name: str, _: nn.Module, tensor: torch.Tensor) -> bool:
    return name.rpartition(".")[2] == "_flat_param" or getattr(tensor, "_fsdp_flattened", False)


def _zero3(_: str, __: nn.Module, tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "ds_id")


def _megatron(_: str, owner: nn.Module, tensor: torch.Tensor) -> bool:
    """Megatron marks every weight that it could cut, also where a group of one holds it whole; on a
    pipeline stage or with a share of the experts, names are counted from zero on each rank."""
    marked = getattr(tensor, "tensor_model_parallel", None)
    if marked is None:
        return False
    sizes = [_size(state) for state in ("tensor", "pipeline", "expert")]
    group = getattr(owner, "tp_group", None)
    if group is not None:
        sizes[0] = group.size()
    if sizes[0] is None:
        sizes[0] = 2 if marked else 1
    return any(size is not None and size > 1 for size in sizes)


def _size(which: str) -> int | None:
    """Ranks of one of Megatron's parallel groups, where Megatron runs here."""
    state = sys.modules.get("megatron.core.parallel_state")
    size = getattr(state, f"get_{which}_model_parallel_world_size", None)
    try:
        return None if size is None else size()
    except (AssertionError, RuntimeError):  # its groups have not been made
        return None


def _packed(_: str, __: nn.Module, tensor: torch.Tensor) -> bool:
    return type(tensor).__name__ in ("Params4bit", "Int8Params")


Mark = Callable[[str, nn.Module, torch.Tensor], Any]

MARKS: tuple[tuple[Mark, str, str], ...] = (
    (
        _flat,
        "belongs to FSDP1 (FullyShardedDataParallel), whose ranks hold pieces of one flattened "
        "parameter, and does not say which",
        "give the FullyShardedDataParallel itself, not what it wraps",
    ),
    (
        _zero3,
        "is partitioned by DeepSpeed ZeRO-3: what this rank holds of it lies elsewhere, flattened",
        "use weightcast.adapters.deepspeed.layout(engine)",
    ),
    (
        _megatron,
        "belongs to Megatron, which has cut or numbered it for this rank without saying here of "
        "which published tensor it is what",
        "use weightcast.adapters.megatron.layout(model), or describe the model by hand, tensor by tensor: "
        "Layout.add(parameter, [weightcast.part(...)])",
    ),
    (
        _packed,
        "is packed by bitsandbytes: its bytes are codes, not weights",
        "publish the weights that it was made of, or Layout.quantise them to FP8",
    ),
)
