"""Gathers the whole of a parameter that ranks share, to the rank that needs the whole.

A tensor that is whole here is read where it lies, on the host as on a device. One that a single dimension
of a mesh cuts goes to the one rank that needs it, over point-to-point sends: each byte crosses once, and no
other rank has memory for it. One that several dimensions cut is gathered by `full_tensor`, on all of its
ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from .. import _core

#: `full_tensor` has what it gathered, what it cut and joined of that, and the step before, at one time.
FULL_TENSOR_COPIES = 3

#: Waits for one thing to have ended.
Wait = Callable[[], object]


@dataclass(frozen=True)
class WholeGather:
    """How one parameter is gathered."""

    #: The global ranks that can have the whole.
    holders: tuple[int, ...]
    #: Over whose mesh; the same text is the same mesh. Empty for what is not gathered.
    lane: str
    #: The dimension of the tensor that is cut, and the ranks' process group; None for what lies whole here,
    #: or is gathered by `full_tensor`.
    cut: tuple[int, Any] | None
    #: Whether all ranks get the whole.
    everywhere: bool

    def nbytes(self, tensor: torch.Tensor, is_owner: bool) -> tuple[int, int]:
        """Bytes while it is gathered, and bytes of the whole then, on this rank."""
        whole = tensor.numel() * tensor.element_size()
        if self.everywhere:
            return whole * FULL_TENSOR_COPIES, whole
        if self.cut is None:
            return 0, 0
        local = tensor.to_local()
        if not is_owner:
            return (0 if local.is_contiguous() else local.nbytes), 0
        # What arrives lies in the whole at once if rows are cut, else beside it until all is there.
        return (whole if self.cut[0] == 0 else 2 * whole - local.nbytes), whole

    def begin(self, tensor: torch.Tensor, owner: int) -> tuple[torch.Tensor | None, list[Wait]]:
        """Begins to gather it to `owner`. The whole (None on ranks that get none), and what to wait for."""
        if self.everywhere:
            return tensor.detach().full_tensor(), []
        if self.cut is None:
            return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach(), []
        dim, group = self.cut
        local = tensor.to_local().detach()
        if dist.get_rank() != owner:
            return None, _sent(local, owner, group)
        return _received(tuple(tensor.shape), local, dim, group)


def gather_of(name: str, tensor: torch.Tensor, peers: tuple[int, ...]) -> WholeGather:
    """How a parameter is gathered. `peers` are the ranks of this replica, all of which have what is not
    cut."""
    if not isinstance(tensor, DTensor):
        return WholeGather(peers, "", None, False)
    mesh = tensor.device_mesh
    cuts = [dim for dim, placement in enumerate(tensor.placements) if _cuts(name, placement, mesh, dim)]
    if not cuts:
        return WholeGather(peers, "", None, False)
    placement = tensor.placements[cuts[0]]
    if len(cuts) == 1 and isinstance(placement, Shard) and not isinstance(placement, _StridedShard):
        group = mesh.get_group(cuts[0])
        ranks = tuple(dist.get_process_group_ranks(group))
        return WholeGather(ranks, f"over {_said(ranks)}", (placement.dim % tensor.ndim, group), False)
    ranks = ranks_of(mesh, cuts)
    return WholeGather(ranks, f"over {_said(ranks)}", None, True)


def _cuts(name: str, placement: Any, mesh: DeviceMesh, dim: int) -> bool:
    if isinstance(placement, Replicate):
        return False
    if isinstance(placement, Shard | _StridedShard):
        return bool(mesh.size(dim) > 1)
    raise _core.LayoutMismatch(f"{name}: placement {placement} holds no slice; redistribute it first")


def ranks_of(mesh: DeviceMesh, dims: list[int]) -> tuple[int, ...]:
    """The global ranks that differ from this one along these dimensions of its mesh at most."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise _core.Misuse("this rank is not part of the module's device mesh")
    at = tuple(slice(None) if dim in dims else coordinate[dim] for dim in range(mesh.ndim))
    return tuple(sorted(mesh.mesh[at].flatten().tolist()))


def _said(ranks: tuple[int, ...]) -> str:
    few = ", ".join(map(str, ranks[:4]))
    return f"ranks {few}" if len(ranks) <= 4 else f"ranks {few}, ... ({len(ranks)})"


def _sent(local: torch.Tensor, owner: int, group: Any) -> list[Wait]:
    if not local.numel():
        return []
    return _together([(dist.isend, _bytes(local.contiguous()), owner)], group)


def _received(
    shape: tuple[int, ...], local: torch.Tensor, dim: int, group: Any
) -> tuple[torch.Tensor, list[Wait]]:
    ranks = dist.get_process_group_ranks(group)
    chunk = -(-shape[dim] // len(ranks))
    whole = torch.empty(shape, dtype=local.dtype, device=local.device)
    receives, placed = [], []
    for number, rank in enumerate(ranks):
        first = min(number * chunk, shape[dim])
        part = whole.narrow(dim, first, min(chunk, shape[dim] - first))
        if rank == dist.get_rank():
            part.copy_(local)
        elif part.numel():
            arriving = part if dim == 0 else torch.empty(part.shape, dtype=part.dtype, device=part.device)
            receives.append((dist.irecv, _bytes(arriving), rank))
            if arriving is not part:
                placed.append((part, arriving))
    waits = _together(receives, group)
    # Copied once all has arrived: on a device that is queued behind the receives.
    waits += [partial(part.copy_, arriving) for part, arriving in placed]
    return whole, waits


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """As bytes, for which every backend has a type."""
    return tensor.view(-1).view(torch.uint8)


def _together(operations: list[tuple[Any, torch.Tensor, int]], group: Any) -> list[Wait]:
    if not operations:
        return []
    begun = [dist.P2POp(do, what, peer, group) for do, what, peer in operations]
    # What is sent and received into stays alive until that has ended.
    return [partial(_ended, work, operations) for work in dist.batch_isend_irecv(begun)]


def _ended(work: Any, _: Any) -> None:
    work.wait()
