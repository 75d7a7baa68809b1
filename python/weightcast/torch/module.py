"""A module's parameters as slices of logical tensors, named as in its checkpoint."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from .. import layout as layouts
from ..adapters.catalog import Catalog, Entry, catalog_of
from ..adapters.peft.names import is_peft
from ..adapters.peft.unmerged import why_unmerged
from ..memory import TORCH
from ..names import NameMap, PublishedSlice, Rename, Stack, check, map_of, renamed
from .flat import Flat, FlatPart, flats, memory_of
from .marks import refuse
from .meshes import coordinate_of, covering
from .ranges import boxes_of
from .tensors import Held, held, local_of, settle


def layout(
    module: nn.Module,
    *,
    names: NameMap | None = None,
    rename: Rename | None = None,
    buffers: bool = True,
    beside: bool = False,
    memory: bool = True,
    expect: Any = None,
) -> layouts.Layout:
    """The layout of a module's local tensors, in place, under the names of its checkpoint: parameters,
    and the persistent buffers that belong to a checkpoint too, unless `buffers=False` leaves them out.

    Reads FSDP2, HSDP and tensor-parallel placements off DTensors, and ranges of flat parameters off FSDP1
    (`FullyShardedDataParallel` itself); plain parameters are whole. Those of DeepSpeed ZeRO-3, and of
    Megatron where several ranks share them, say so only to `weightcast.adapters.deepspeed` and
    `.megatron`, and raise `Misuse` here. Buffers that a forward pass changes (the statistics of batch
    norms) are published memory too: run it in `eval` between `publish` and `unpublish`, and keep them
    equal on all ranks, or leave them out. Tied weights are listed once, under their first name, as in
    published checkpoints. `names` says what the checkpoint calls a parameter, or what it keeps apart that
    the module stacks; without it, what transformers models need (`weightcast.names`). `rename` maps a
    published name to another, or to None to leave it out. Parameters on a GPU get a copy in host memory,
    and with `beside` those on the host too (see `weightcast.Layout`). Without `memory` the module may lie on
    the `meta` device, and the layout can be described and planned alone. `expect` is a catalog (a mapping,
    or a directory of safetensors: see `weightcast.adapters.catalog.catalog_of`) that must be met name by
    name and shape by shape; what is left over on either side is an error.

    The layout remembers the module (weakly): if it has other storage later, `register`, `publish` and
    `update` raise `Misuse` and name the tensors.
    """
    listed = layouts.Layout(beside=beside, memory=memory)
    published = add_module(listed, module, names=names, rename=rename, buffers=buffers)
    if expect is not None:
        check(published, catalog_of(expect))
    return listed


def add_module(
    listed: layouts.Layout,
    module: nn.Module,
    *,
    names: NameMap | None,
    rename: Rename | None,
    buffers: bool,
    but: Collection[str] = (),
    instead: Mapping[str, torch.Tensor] | None = None,
) -> Catalog:
    """Adds a module's tensors to a layout, all `but` those of these names there; `instead` of some, by
    their names, other memory of the same shape, into which nothing is read. Returns what all ranks publish
    in place."""
    if isinstance(module, DistributedDataParallel):
        module = module.module
    if names is None and is_peft(module):
        listed.origins.until(why_unmerged)
    names = names or map_of(module)
    pieces = flats(module)
    meshes: list[DeviceMesh] = []
    published: Catalog = {}
    kept: list[Held] = []
    for what, one in chosen(module, names, rename, buffers, but, pieces):
        name, tensor = one.name, one.tensor
        refuse(name, one.owner, tensor)
        other = None if instead is None else instead.get(name)
        _add(listed, what, name, tensor, other)
        if other is None:
            kept.append(one)
        published |= _whole(what, name, tensor)
        if isinstance(tensor, DTensor) and tensor.device_mesh not in meshes:
            meshes.append(tensor.device_mesh)
    for what, part in _chosen_of(pieces, names, rename):
        _add_range(listed, what, part)
        published |= _whole(what, part.name, part.whole)
    if meshes:
        listed.exchange = _exchange_of(meshes)
    elif cut := next((flat for flat in pieces if flat.is_cut), None):
        listed.exchange = exchange_over([cut.group], memory_of(cut.owner).device.type)
    listed.origins.module(module, settle)
    for flat in pieces:
        listed.origins.place(flat.parts[0].name, flat.owner, lambda owner: memory_of(owner).data_ptr())
    for name, owner, key, _ in kept:
        listed.origins.slot(name, owner, key)
    return published


def published_by(
    module: nn.Module,
    *,
    names: NameMap | None,
    rename: Rename | None,
    buffers: bool,
    but: Collection[str] = (),
    casts: Mapping[str, torch.dtype] | None = None,
) -> Catalog:
    """What all ranks publish of a module with `add_module`, some of it in other types."""
    listed: Catalog = {}
    names = names or map_of(module)
    pieces = flats(module)
    for what, part in _chosen_of(pieces, names, rename):
        listed |= _whole(what, part.name, part.whole)
    for what, one in chosen(module, names, rename, buffers, but, pieces):
        found = _whole(what, one.name, one.tensor)
        if casts is not None and one.name in casts:
            dtype = TORCH[str(casts[one.name]).removeprefix("torch.")]
            found = {name: Entry(entry.shape, dtype) for name, entry in found.items()}
        listed |= found
    return listed


def names_of(
    module: nn.Module,
    *,
    names: NameMap | None,
    rename: Rename | None,
    buffers: bool,
    but: Collection[str] = (),
) -> dict[str, list[str]]:
    """Under which names each tensor of a module is published, by the module's own names."""
    pairs = chosen(module, names, rename, buffers, but, flats(module))
    return {one.name: list(_whole(what, one.name, one.tensor)) for what, one in pairs}


def chosen(
    module: nn.Module,
    names: NameMap | None,
    rename: Rename | None,
    buffers: bool,
    but: Collection[str] = (),
    pieces: Sequence[Flat] = (),
) -> Iterator[tuple[str | Stack, Held]]:
    """The tensors of a module that are published, and as what; none that are flattened in `pieces`."""
    names = names or map_of(module)
    flattened = frozenset[int]().union(*(flat.standing for flat in pieces))
    for one in held(module, buffers):
        if id(one.tensor) in flattened:
            continue
        what = None if one.name in but else names.published(one.name)
        what = renamed(what, rename, one.name)
        if what is not None:
            yield what, one


def _chosen_of(
    pieces: Sequence[Flat], names: NameMap, rename: Rename | None
) -> Iterator[tuple[str | Stack, FlatPart]]:
    """The parameters that are published of those that are flattened, and as what."""
    for part in (part for flat in pieces for part in flat.parts):
        what = renamed(names.published(part.name), rename, part.name)
        if what is not None:
            yield what, part


def _whole(what: str | Stack, name: str, tensor: torch.Tensor) -> dict[str, Entry]:
    """The catalog of one parameter, as all ranks have it."""
    dtype = TORCH.get(str(tensor.dtype).removeprefix("torch."), str(tensor.dtype))
    if isinstance(what, str):
        return {what: Entry(tuple(tensor.shape), dtype)}
    return {one: Entry(shape, dtype) for one, shape in what.whole(name, tensor.shape).items()}


def exchange(mesh: DeviceMesh) -> layouts.Exchange:
    """Takes the largest of each number over all ranks of a device mesh: what FP8 blocks that lie
    with several ranks need (`Layout.exchange`)."""
    # The largest along one dimension after the other is the largest of all.
    return exchange_over([mesh.get_group(dim) for dim in range(mesh.ndim)], mesh.device_type)


def exchange_over(groups: Sequence[Any], device: str | None = None) -> layouts.Exchange:
    """The same over process groups, one after the other; tensors go over a device, that of the groups'
    backend if none is given."""
    if device is None:
        device = "cuda" if any("nccl" in dist.get_backend(group) for group in groups) else "cpu"

    def largest(numbers: npt.NDArray[np.int32]) -> None:
        mine = torch.from_numpy(numbers)
        all_ = mine.to(device)
        for group in groups:
            dist.all_reduce(all_, op=dist.ReduceOp.MAX, group=group)
        mine.copy_(all_)

    return largest


def _exchange_of(meshes: list[DeviceMesh]) -> layouts.Exchange:
    """An exchange over all ranks of these meshes; where there is no mesh for that, only whoever needs it is
    told."""
    try:
        return exchange(covering(meshes))
    except _core.Misuse as error:
        reason = str(error)

    def refused(_: npt.NDArray[np.int32]) -> None:
        raise _core.Misuse(f"FP8 blocks of which several ranks hold parts need all ranks: {reason}")

    return refused


def _add(
    listed: layouts.Layout, what: str | Stack, name: str, tensor: torch.Tensor, other: torch.Tensor | None
) -> None:
    """Adds what a rank holds of a tensor, or other memory of the same shape."""
    memory, dtype = (local_of(tensor), None) if other is None else read_only(other)
    if isinstance(what, str) and not isinstance(tensor, DTensor):
        listed.add(memory, what, dtype=dtype)
        return
    slices = _slices(name, tensor)
    along = 0
    if len(slices) > 1:
        along = next(d for d in range(tensor.ndim) if slices[0][0][d] != slices[1][0][d])
    if isinstance(what, str):
        shape = tuple(tensor.shape)
        published = [PublishedSlice(what, shape, tuple(at), tuple(length)) for at, length in slices]
    else:
        if along != 0:
            raise _core.LayoutMismatch(f"{name}: a stack is cut once along its rows or columns")
        published = [one for box in slices for one in what.slices(name, tensor.shape, box)]
        if not published:
            return
    listed.add(memory, [layouts.part_of(one) for one in published], along=along, dtype=dtype)


def _add_range(listed: layouts.Layout, what: str | Stack, part: FlatPart) -> None:
    """Adds what a rank holds of a parameter that is flattened, box by box."""
    shape, at = tuple(part.whole.shape), 0
    for start, length in boxes_of(shape, part.first, part.memory.numel()):
        count = prod(length)
        memory = part.memory.narrow(0, at, count)
        at += count
        if isinstance(what, str):
            memory, published = memory.view(length), [PublishedSlice(what, shape, start, length)]
        else:
            memory, published = memory.view(-1, length[-1]), what.slices(part.name, shape, (start, length))
        if published:
            listed.add(memory, [layouts.part_of(one) for one in published])


def read_only(host: torch.Tensor) -> tuple[npt.NDArray[Any], str]:
    """Host memory as an array that nothing is read into, and its type."""
    array = host.view(-1).view(torch.uint8).numpy().view(f"u{host.element_size()}").reshape(host.shape)
    array.setflags(write=False)
    return array, TORCH[str(host.dtype).removeprefix("torch.")]


def _slices(name: str, tensor: torch.Tensor) -> list[tuple[list[int], list[int]]]:
    """First index and length by dimension of each box that this rank holds."""
    if not isinstance(tensor, DTensor):
        return [([0] * tensor.ndim, list(tensor.shape))]
    return boxes_at(name, tensor, list(coordinate_of(tensor.device_mesh)))


def boxes_at(name: str, tensor: DTensor, coordinate: list[int]) -> list[tuple[list[int], list[int]]]:
    """First index and length by dimension of each box that the rank at a coordinate of the mesh holds. What
    that rank has is the boxes one behind the other, along the dimension in which they differ."""
    mesh = tensor.device_mesh
    axes = [(f"dim{dim}", size) for dim, size in enumerate(mesh.shape)]
    placements = [_placement(name, placement) for placement in tensor.placements]
    rank = _flatten(coordinate, list(mesh.shape))
    try:
        return _core.local_slices(list(tensor.shape), axes, placements, rank)
    except ValueError as error:
        raise _core.LayoutMismatch(f"{name}: {error}") from None


def _placement(name: str, placement: Placement) -> tuple[str, int, int]:
    if isinstance(placement, Replicate):
        return ("replicate", 0, 1)
    if isinstance(placement, _StridedShard):
        return ("strided", placement.dim, placement.split_factor)
    if isinstance(placement, Shard):
        return ("shard", placement.dim, 1)
    raise _core.LayoutMismatch(f"{name}: placement {placement} holds no slice; redistribute it first")


def _flatten(coordinate: list[int], sizes: list[int]) -> int:
    """Row-major index of a coordinate."""
    index = 0
    for at, size in zip(coordinate, sizes, strict=True):
        index = index * size + at
    return index
