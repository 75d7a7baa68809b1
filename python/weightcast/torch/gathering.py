"""Gathers the whole of a parameter that ranks share, to the one rank that needs the whole.

A tensor that is whole here is read where it lies, on the host as on a device. One that is cut goes to the
rank that needs it over point-to-point sends: each byte crosses once, straight into its place where that is
one piece of memory, and no other rank has memory for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .meshes import coordinate_of
from .module import boxes_at
from .tensors import local_of

#: Waits for one thing to have ended.
Wait = Callable[[], object]
#: First index and length by dimension.
TensorBox = tuple[list[int], list[int]]


@dataclass(frozen=True)
class WholeGather:
    """How one parameter is gathered."""

    #: The global ranks that can have the whole.
    holders: tuple[int, ...]
    #: Over which ranks; the same text is the same ranks. Empty for what lies whole here.
    lane: str = ""
    #: The process group of those ranks; None for what lies whole here.
    group: Any = None
    #: By global rank, the boxes that it holds. None for what lies whole here.
    boxes: dict[int, list[TensorBox]] = field(default_factory=dict)

    def nbytes(self, tensor: torch.Tensor, owner: int) -> tuple[int, int]:
        """Bytes while it is gathered, and bytes of the whole then, on this rank."""
        if not self.lane or owner not in self.holders:
            return 0, 0
        local = local_of(tensor)
        if dist.get_rank() != owner:
            return (0 if local.is_contiguous() else local.nbytes), 0
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        arrivals = [_arrival(whole, boxes) for rank, boxes in self.boxes.items() if rank != dist.get_rank()]
        beside = sum(arriving.nbytes for arriving, places in arrivals if places)
        return whole.nbytes + beside, whole.nbytes

    def begin(self, tensor: torch.Tensor, owner: int) -> tuple[torch.Tensor | None, list[Wait]]:
        """Begins to gather it to `owner`. The whole (None on ranks that get none), and what to wait for."""
        local = local_of(tensor).detach()
        if not self.lane:
            return local, []
        if dist.get_rank() == owner:
            return self._received(tuple(tensor.shape), local)
        # An owner that these ranks do not have among them has the tensor from others, of equal copies.
        if owner not in self.holders or not local.numel():
            return None, []
        return None, _together([(dist.isend, local.contiguous(), owner)], self.group)

    def _received(self, shape: tuple[int, ...], local: torch.Tensor) -> tuple[torch.Tensor, list[Wait]]:
        whole = torch.empty(shape, dtype=local.dtype, device=local.device)
        receives, copies = [], []
        for rank, boxes in self.boxes.items():
            if rank == dist.get_rank():
                _place(whole, boxes, local)
                continue
            arriving, apart = _arrival(whole, boxes)
            if arriving.numel():
                receives.append((dist.irecv, arriving, rank))
            if apart:
                copies.append(partial(_place, whole, boxes, arriving))
        # Copied once all has arrived: on a device that is queued behind the receives.
        return whole, [*_together(receives, self.group), *copies]


def gather_of(name: str, tensor: torch.Tensor, peers: tuple[int, ...]) -> WholeGather:
    """How a parameter is gathered. `peers` are the ranks of this replica, all of which have what is not
    cut."""
    if not isinstance(tensor, DTensor):
        return WholeGather(peers)
    mesh = tensor.device_mesh
    coordinate = coordinate_of(mesh)
    boxes_at(name, tensor, list(coordinate))  # refuses placements that hold no slice
    cuts = [d for d, p in enumerate(tensor.placements) if not p.is_replicate() and mesh.size(d) > 1]
    if not cuts:
        return WholeGather(peers)
    boxes: dict[int, list[TensorBox]] = {}
    for at in product(*(range(mesh.size(d)) if d in cuts else [coordinate[d]] for d in range(mesh.ndim))):
        boxes[int(mesh.mesh[at])] = boxes_at(name, tensor, list(at))
    ranks = tuple(sorted(boxes))
    group = mesh.get_group(cuts[0]) if len(cuts) == 1 else _group(ranks)
    few = ", ".join(map(str, ranks[:4]))
    lane = f"over ranks {few}" if len(ranks) <= 4 else f"over {len(ranks)} ranks {few}, ..."
    return WholeGather(ranks, lane, group, dict(sorted(boxes.items())))


def ranks_of(mesh: DeviceMesh, dims: list[int]) -> tuple[int, ...]:
    """The global ranks that differ from this one along these dimensions of its mesh at most."""
    coordinate = coordinate_of(mesh)
    at = tuple(slice(None) if dim in dims else coordinate[dim] for dim in range(mesh.ndim))
    return tuple(sorted(mesh.mesh[at].flatten().tolist()))


#: Process groups of ranks along several dimensions of a mesh, which torch makes none of. By the group of all,
#: since they end with it.
_groups: dict[tuple[Any, tuple[int, ...]], Any] = {}


def _group(ranks: tuple[int, ...]) -> Any:
    world = dist.group.WORLD
    if len(ranks) == dist.get_world_size():
        return world
    if (world, ranks) not in _groups:
        _groups[world, ranks] = dist.new_group(list(ranks), use_local_synchronization=True)
    return _groups[world, ranks]


def _arrival(whole: torch.Tensor, boxes: list[TensorBox]) -> tuple[torch.Tensor, bool]:
    """Where what another rank holds arrives: in its place, if that is one piece of memory; else in memory
    beside it, and the answer is True."""
    if len(boxes) == 1 and (place := _view(whole, boxes[0])).is_contiguous():
        return place, False
    along = _along(boxes)
    shape = list(boxes[0][1]) if boxes else [0]
    if boxes:
        shape[along] = sum(length[along] for _, length in boxes)
    return torch.empty(shape, dtype=whole.dtype, device=whole.device), True


def _place(whole: torch.Tensor, boxes: list[TensorBox], held: torch.Tensor) -> None:
    """Copies what a rank holds into its places."""
    along, at = _along(boxes), 0
    for box in boxes:
        length = box[1][along] if box[1] else 0
        _view(whole, box).copy_(held.narrow(along, at, length))
        at += length


def _along(boxes: list[TensorBox]) -> int:
    """The dimension in which the boxes of a rank lie one behind the other."""
    if len(boxes) < 2:
        return 0
    firsts = zip(boxes[0][0], boxes[1][0], strict=True)
    return next(dim for dim, (one, other) in enumerate(firsts) if one != other)


def _view(whole: torch.Tensor, box: TensorBox) -> torch.Tensor:
    for dim, (first, length) in enumerate(zip(*box, strict=True)):
        whole = whole.narrow(dim, first, length)
    return whole


def _together(operations: list[tuple[Any, torch.Tensor, int]], group: Any) -> list[Wait]:
    if not operations:
        return []
    # As bytes, for which every backend has a type.
    flat = [dist.P2POp(do, what.view(-1).view(torch.uint8), peer, group) for do, what, peer in operations]
    # What is sent and received into stays alive until that has ended.
    return [partial(_ended, work, operations) for work in dist.batch_isend_irecv(flat)]


def _ended(work: Any, _: Any) -> None:
    work.wait()
