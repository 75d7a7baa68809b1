"""Moves the memory of a module to where other processes of this host can map it; all else stays as it is."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .. import _core
from ..shared import allocate
from .outside import Mappings, why_outside

#: Tensors whose bytes are all of them. Others keep more elsewhere, or make theirs when they are asked.
_PLAIN = (torch.Tensor, nn.Parameter, getattr(nn, "Buffer", nn.Parameter))


class NotShareable(_core.Misuse):
    """Some tensors of the module cannot be moved. None was moved."""

    def __init__(self, tensors: dict[str, str]) -> None:
        listed = "; ".join(f"{name}: {why}" for name, why in tensors.items())
        super().__init__(
            f"share_ cannot move {len(tensors)} of the module's tensors ({listed}). Nothing was moved: share "
            "the module before it is wrapped or used, or leave it as it is; it is read directly then"
        )
        #: By the name of each, why.
        self.tensors = tensors


def share_(module: nn.Module, *, buffers: bool = False, numa_node: int | None = None) -> nn.Module:
    """Moves the parameters of a module on the CPU to shared memory, in place; with `buffers` its persistent
    buffers as well. Returns the module.

    Each parameter stays the object that it was: an optimizer goes on with it, `requires_grad`, gradients
    and hooks are kept, and tied parameters stay tied. Tensors that share memory go on sharing it: a buffer
    that is a view of a parameter moves along. What is in shared memory already stays where it is. Whatever
    replaces the memory of a parameter later (`module.to`, `load_state_dict(assign=True)`) takes it out again.
    With `numa_node` the memory comes from that node alone, as in `weightcast.empty_like`.

    A tensor that cannot be moved, and why, is named in `NotShareable`, and nothing is moved then: memory
    of a device, sparse and quantised tensors, subclasses of tensors (FSDP2 and DTensor among them), memory
    to which something outside of the module refers as well, or that torch did not make (a numpy array).
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"share_ takes a torch.nn.Module, not a {type(module).__name__}: for tensors of your own make "
            "others with weightcast.empty_like(tensors), and copy the values into those"
        )
    groups = _by_storage(module)
    wanted = _wanted(module, buffers)
    groups = [group for group in groups if any(id(tensor) in wanted for _, tensor in group)]
    mappings = Mappings()
    refused = dict(refusal for group in groups for refusal in _refusals(group, mappings))
    if refused:
        raise NotShareable(refused)
    groups = [group for group in groups if not _is_shared(group[0][1])]
    buffers_ = allocate([group[0][1].untyped_storage().nbytes() for group in groups], numa_node)
    for group, buffer in zip(groups, buffers_, strict=True):
        _move([tensor for _, tensor in group], buffer)
    return module


_Named = tuple[str, torch.Tensor]


def _all(module: nn.Module) -> Iterator[_Named]:
    """Every tensor under its first name."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _wanted(module: nn.Module, buffers: bool) -> set[int]:
    wanted = {id(tensor) for tensor in module.parameters()}
    if buffers:
        for each in module.modules():
            kept = each._buffers.keys() - each._non_persistent_buffers_set
            wanted |= {id(each._buffers[key]) for key in kept if each._buffers[key] is not None}
    return wanted


def _by_storage(module: nn.Module) -> list[list[_Named]]:
    """The tensors of each piece of memory. Whoever has no memory to speak of is alone."""
    groups: dict[Any, list[_Named]] = {}
    for name, tensor in _with_bases(_all(module)):
        plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu"
        key = tensor.untyped_storage()._cdata if plain else ("alone", id(tensor))
        groups.setdefault(key, []).append((name, tensor))
    return list(groups.values())


def _with_bases(tensors: Iterator[_Named]) -> Iterator[_Named]:
    """And the tensors of which some are views. Those move too, whoever refers to them besides: a view and the
    tensor that it is a view of are of one memory, and that tensor is often in no module."""
    named = list(tensors)
    known = {id(tensor) for _, tensor in named}
    yield from named
    for name, tensor in named:
        base = tensor._base if type(tensor) in _PLAIN else None
        if base is not None and id(base) not in known:
            known.add(id(base))
            named.append((name, base))
            yield name, base


def _refusals(group: list[_Named], mappings: Mappings) -> Iterator[tuple[str, str]]:
    for name, tensor in group:
        if why := _why_not(tensor):
            yield name, why
            return
    name, tensor = group[0]
    if tensor.untyped_storage().nbytes() == 0 or _is_shared(tensor):
        return
    if why := why_outside(tensor, mappings):
        yield name, why
    elif _holders(tensor) > len(group):
        yield name, "something else refers to its memory as well, and would be left behind with the old one"


def _why_not(tensor: torch.Tensor) -> str | None:
    if type(tensor) not in _PLAIN:
        return f"a {type(tensor).__name__} keeps its memory in its own way"
    if tensor.device.type != "cpu":
        return f"it is on {tensor.device}"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}"
    if tensor.is_quantized:
        return "it is quantised"
    if tensor.is_inference():
        return "it was made in inference mode"
    if tensor.is_conj() or tensor.is_neg():
        return "it is a conjugate or negative that is still to be worked out (resolve_conj, resolve_neg)"
    return None


def _holders(tensor: torch.Tensor) -> int:
    """How many tensors refer to the memory, those of autograd among them."""
    storage = tensor.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata)) - 1  # `storage` itself


def _is_shared(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    return storage.nbytes() > 0 and _core.is_shared(storage.data_ptr(), storage.nbytes())


def _move(tensors: list[torch.Tensor], buffer: Any) -> None:
    old = tensors[0].untyped_storage()
    if old.nbytes() == 0:
        return
    new = torch.frombuffer(buffer, dtype=torch.uint8)
    new.copy_(torch.empty(0, dtype=torch.uint8).set_(old))
    for tensor in tensors:
        moved = torch.empty(0, dtype=tensor.dtype)
        moved.set_(new.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
        tensor.data = moved
