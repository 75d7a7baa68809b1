"""Which shard of which replica this rank's module is."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from ..copies import copies_of
from ..replica import Replica
from .agreement import told_by_all
from .flat import Flat, flats
from .meshes import coordinate_of, covering, root_of
from .tensors import held


def replica(name: str, module: nn.Module, *, group: Any = None, **labels: Any) -> Replica:
    """Which shard of which replica this rank's module is, read off its device meshes.

    Ranks that hold the same boxes of all parameters hold copies (HSDP, DDP): each copy is a replica of its
    own, named `name-0`, `name-1`, ... if there are several. The others are the shards of one. Every rank of
    `DistributedDataParallel` has a whole copy. A plain module is one.

    Where parameters lie on one mesh that was made by itself, nothing is asked of other ranks. Else (tensor
    parallelism beside FSDP, experts on a mesh of their own, pipeline stages along another dimension of the
    mesh) all ranks of the mesh call this together. `group` is the process group of all ranks that train this
    module, for what no mesh says: all of them call it then. `labels` go to `Replica`.
    """
    return copy_of(module, group).replica(name, **labels)


@dataclass(frozen=True)
class Copy:
    """One whole copy of a module, as one of its ranks sees it."""

    #: Which one, and how many there are.
    number: int
    count: int
    #: The global ranks that hold it together, in the order of its shards.
    ranks: tuple[int, ...]
    #: This rank's shard of it.
    shard: int

    def replica(self, name: str, **labels: Any) -> Replica:
        """The copy as a replica, numbered if there are several. `labels` go to `Replica`."""
        numbered = f"{name}-{self.number}" if self.count > 1 else name
        return Replica(numbered, shard=self.shard, num_shards=len(self.ranks), **labels)


def copy_of(module: nn.Module, group: Any = None) -> Copy:
    """The copy of which this rank holds a part. As `replica`, all ranks call it together."""
    pieces = flats(module)
    flattened = {id_ for flat in pieces for id_ in flat.standing}
    listed = held(module, buffers=False)
    tensors = {one.name: one.tensor for one in listed if id(one.tensor) not in flattened}
    meshes: list[DeviceMesh] = []
    for tensor in tensors.values():
        if isinstance(tensor, DTensor) and tensor.device_mesh not in meshes:
            meshes.append(tensor.device_mesh)
    if group is not None:
        return _told(tensors, pieces, None, group)
    if pieces:
        return _of_flats(pieces, meshes)
    if not meshes:
        return _alike(module)
    if len(meshes) == 1 and root_of(meshes[0]) == meshes[0]:
        return _computed(tensors, meshes[0])
    return _told(tensors, pieces, covering(meshes), None)


def _alike(module: nn.Module) -> Copy:
    """Of a module that each rank has whole."""
    own = dist.get_rank() if dist.is_initialized() else 0
    if not isinstance(module, DistributedDataParallel):
        return Copy(0, 1, (own,), 0)
    ranks = dist.get_process_group_ranks(module.process_group)
    return Copy(ranks.index(own), len(ranks), (own,), 0)


def _computed(tensors: dict[str, torch.Tensor], mesh: DeviceMesh) -> Copy:
    """Of a module on one mesh: what other ranks hold follows from where they are there."""
    own = coordinate_of(mesh)
    places = list(product(*map(range, mesh.shape)))
    holdings = [_holding(tensors, dict.fromkeys([mesh], place)) for place in places]
    return _copy(holdings, mesh.mesh.flatten().tolist(), places.index(own))


def _of_flats(pieces: Sequence[Flat], meshes: Sequence[DeviceMesh]) -> Copy:
    """Of a module of FSDP1, by the process groups of its flat parameters."""
    first = pieces[0]
    if meshes or any((flat.ranks, flat.copy) != (first.ranks, first.copy) for flat in pieces):
        raise _core.Misuse(
            "parameters are cut by FSDP1 over different process groups, or beside device meshes; give "
            "group=, the process group of all ranks that train this module"
        )
    own = first.ranks.index(dist.get_rank())
    if any(flat.is_cut for flat in pieces):
        return Copy(*first.copy, first.ranks, own)
    return Copy(own, len(first.ranks), (dist.get_rank(),), 0)


def _told(
    tensors: dict[str, torch.Tensor], pieces: Sequence[Flat], mesh: DeviceMesh | None, group: Any
) -> Copy:
    """Of any module: each rank of a mesh or group says what it holds."""
    place: tuple[int, ...] = ()
    digest = failed = None
    try:
        place = coordinate_of(mesh) if mesh is not None else (dist.get_rank(group),)
        of_flats = [([part.name for part in flat.parts], flat.holding) for flat in pieces]
        held_here = repr((_holding(tensors, _places(tensors)), of_flats))
        digest = sha256(held_here.encode()).hexdigest()
    except _core.WeightcastError as error:
        failed = str(error)
    said = sorted(_asked(mesh, group, (place, dist.get_rank(), digest, failed)))
    for _, rank, _, reason in said:
        if reason is not None:
            raise _core.Misuse(f"rank {rank}: {reason}")
    own = next(at for at, one in enumerate(said) if one[1] == dist.get_rank())
    return _copy([one[2] for one in said], [one[1] for one in said], own)


def _asked(mesh: DeviceMesh | None, group: Any, mine: Any) -> list[Any]:
    if mesh is not None:
        return told_by_all(mesh, mine)
    heard: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(heard, mine, group=group)
    return heard


def _places(tensors: dict[str, torch.Tensor]) -> dict[DeviceMesh, tuple[int, ...]]:
    """Where this rank is in each mesh of the tensors."""
    found: dict[DeviceMesh, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, DTensor) or tensor.device_mesh in found:
            continue
        try:
            found[tensor.device_mesh] = coordinate_of(tensor.device_mesh)
        except _core.Misuse:
            raise _core.Misuse(
                f"this rank has {name} and is not part of its device mesh, {tensor.device_mesh}; leave what "
                "other ranks hold out of this rank's module"
            ) from None
    return found


def _holding(tensors: dict[str, torch.Tensor], places: dict[DeviceMesh, tuple[int, ...]]) -> Hashable:
    """What a rank holds that is in these places: equal for ranks that hold the same boxes. Ranks with nothing
    of a short tensor are told apart, so that each shard has its equal in every copy."""
    return tuple((name, tuple(tensor.shape), _cut(tensor, places)) for name, tensor in tensors.items())


def _cut(tensor: torch.Tensor, places: dict[DeviceMesh, tuple[int, ...]]) -> Hashable:
    if not isinstance(tensor, DTensor):
        return ()
    mesh = tensor.device_mesh
    cuts = zip(tensor.placements, places[mesh], mesh.shape, strict=True)
    return tuple((str(p), at, size) for p, at, size in cuts if not p.is_replicate())


def _copy(holdings: Sequence[Hashable], ranks: Sequence[int], own: int) -> Copy:
    copies = copies_of(holdings)
    number = next(n for n, copy in enumerate(copies) if own in copy)
    copy = copies[number]
    return Copy(number, len(copies), tuple(ranks[at] for at in copy), copy.index(own))
