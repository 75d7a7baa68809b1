"""What a module holds between steps: parameters and persistent buffers, each memory once."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed import fsdp
from torch.distributed.tensor import DTensor

#: FSDP2's modules, where torch has them.
_FSDP2 = getattr(fsdp, "FSDPModule", ())


class Held(NamedTuple):
    """One tensor: its name, the module whose attribute it is, and under which key."""

    name: str
    owner: nn.Module
    key: str
    tensor: torch.Tensor


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor. Of a weight that torchao has FSDP2 gather in FP8 it is the weight
    itself, which torchao's tensor keeps inside."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local._tensor if type(local).__name__ == "WeightWithDynamicFloat8CastTensor" else local


def settle(module: nn.Module) -> None:
    """Has FSDP2 let go of what it gathered: after a forward pass without a backward one, the gathered
    parameters of the root still stand in for the sharded ones."""
    for each in module.modules():
        if isinstance(each, _FSDP2):
            each.reshard()


def held(module: nn.Module, buffers: bool) -> Iterator[Held]:
    """Parameters, then with `buffers` what else a checkpoint of the module has.

    Tied weights are there once, under their first name, whether one parameter has two names or two
    have one memory.
    """
    settle(module)
    seen = set()
    for one in [*_parameters(module), *(_buffers(module) if buffers else ())]:
        place = _place(one.tensor)
        if id(one.tensor) not in seen and place not in seen:
            seen |= {id(one.tensor), place} - {None}
            yield one


def _parameters(module: nn.Module) -> Iterator[Held]:
    for path, owner in module.named_modules():
        for key, tensor in owner._parameters.items():
            if tensor is not None:
                yield Held(join(path, key), owner, key, _as_cut(tensor))


def _as_cut(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor in place of what DDP over tensor parallelism leaves of one between steps: this rank's shard,
    with a note of what was cut how."""
    spec = getattr(tensor, "_st_info", None)
    if spec is None:
        return tensor
    return DTensor.from_local(
        tensor.detach(), spec.mesh, spec.placements, run_check=False, shape=spec.shape, stride=spec.stride
    )


def _buffers(module: nn.Module) -> Iterator[Held]:
    # transformers lists here what its `save_pretrained` leaves out.
    ignored = set(getattr(module, "_keys_to_ignore_on_save", None) or ())
    for path, owner in module.named_modules():
        for key, tensor in owner._buffers.items():
            name = join(path, key)
            persistent = key not in owner._non_persistent_buffers_set and name not in ignored
            if tensor is not None and persistent:
                yield Held(name, owner, key, tensor)


def join(path: str, key: str) -> str:
    """The name of what a module at a path has under a key."""
    return f"{path}.{key}" if path else key


def _place(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What two tensors have in common that are one memory; None where there is none."""
    local = local_of(tensor)
    if type(local).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or local.is_meta:
        return None
    if not local.numel() or local.layout is not torch.strided:
        return None
    return (local.device, local.data_ptr(), tuple(local.shape), local.stride(), local.dtype)
