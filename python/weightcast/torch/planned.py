"""Which rank makes which product, and how its inputs get there."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .. import _core
from ..pinned import PinnedMemory
from ..pipeline.course import Item
from ..pipeline.run import Gathering
from ..pipeline.sharing import share
from .gathering import WholeGather, gather_of, ranks_of
from .recipes import Product
from .streams import end_here
from .tensors import local_of


class Ranks:
    """The ranks among which a module lies, as this one of them sees it."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        sharded = [tensor for tensor in tensors if isinstance(tensor, DTensor)]
        meshes = [tensor.device_mesh for tensor in sharded]
        #: The largest mesh, over which ranks agree; None for a module that each rank has whole.
        self.mesh: DeviceMesh | None = max(meshes, key=lambda mesh: mesh.size(), default=None)
        self.own = dist.get_rank() if dist.is_initialized() else 0
        #: The ranks of this replica: those that differ along the dimensions that cut anything.
        self.peers: tuple[int, ...] = (self.own,)
        if (mesh := self.mesh) is not None:
            on_it = [tensor for tensor in sharded if tensor.device_mesh == mesh]
            cuts = [
                dim
                for dim in range(mesh.ndim)
                if not all(tensor.placements[dim].is_replicate() for tensor in on_it)
            ]
            self.peers = ranks_of(mesh, cuts)

    @property
    def publishes(self) -> bool:
        """Whether this rank has a part in publishing: of a module that each rank has whole, rank 0 alone."""
        return self.mesh is not None or self.own == 0


@dataclass(frozen=True)
class Planned:
    """A product, and this rank's part in it."""

    product: Product
    gathers: tuple[WholeGather, ...]
    #: The global rank that makes and serves it.
    owner: int
    is_here: bool
    #: Host memory of each output; none on other ranks.
    host: tuple[torch.Tensor, ...]

    @property
    def lane(self) -> str:
        """Over which ranks it is gathered, with a part of this one; empty if this one has none."""
        lanes = [gather.lane for gather in self.gathers if gather.lane and self.owner in gather.holders]
        return max(lanes, key=len, default="")

    def item(self, tensors: Sequence[torch.Tensor]) -> Item:
        """The piece of work that it is on this rank."""
        sizes = [g.nbytes(t, self.owner) for g, t in zip(self.gathers, tensors, strict=True)]
        name = self.product.name
        return Item(
            name,
            gathering=sum(most for most, _ in sizes),
            gathered=sum(whole for _, whole in sizes),
            making=self.product.making if self.is_here else 0,
            slot=name if self.is_here else None,
        )

    def begin(self, tensors: Sequence[torch.Tensor]) -> Gathering:
        """Begins to gather its inputs."""
        wholes: list[torch.Tensor] = []
        waits: list[Callable[[], object]] = []
        for gather, tensor in zip(self.gathers, tensors, strict=True):
            whole, begun = gather.begin(tensor, self.owner)
            if whole is not None:
                wholes.append(whole)
            if local_of(tensor).device.type == "cpu":
                waits += begun
                continue
            # On a device, to wait is to queue behind; the end is told by an event.
            for wait in begun:
                wait()
        if (on_device := end_here([local_of(tensor) for tensor in tensors])) is not None:
            waits.append(on_device)
        return Gathering(wholes, partial(_all, waits) if waits else None)


def plan(
    products: Sequence[Product], tensors: Mapping[str, torch.Tensor], ranks: Ranks, memory: PinnedMemory
) -> list[Planned]:
    """Shares out the products, by bytes. All ranks come to the same."""
    gathers = [
        tuple(gather_of(name, tensors[name], ranks.peers) for name in product.inputs) for product in products
    ]
    by_holders: dict[tuple[int, ...], list[int]] = {}
    for number, product in enumerate(products):
        by_holders.setdefault(_holders(product, gathers[number]), []).append(number)
    owners: dict[int, int] = {}
    # Each set of ranks shares by itself: nobody knows what the others of a rank's meshes have to do.
    for holders, numbers in by_holders.items():
        bearers = share([products[number].nbytes for number in numbers], len(holders))
        owners |= {number: holders[bearer] for number, bearer in zip(numbers, bearers, strict=True)}
    planned = []
    for number, product in enumerate(products):
        is_here = owners[number] == ranks.own and ranks.publishes
        inputs = [tensors[name] for name in product.inputs]
        host = _host_memory(product, inputs, memory) if is_here else ()
        planned.append(Planned(product, gathers[number], owners[number], is_here, host))
    return planned


def _host_memory(
    product: Product, inputs: Sequence[torch.Tensor], memory: PinnedMemory
) -> tuple[torch.Tensor, ...]:
    kinds = {local_of(tensor).device.type for tensor in inputs}
    device = next(iter(kinds - {"cpu"}), "cpu")
    return tuple(memory.sized(shape, dtype, device) for shape, dtype in product.made)


def _holders(product: Product, gathers: Sequence[WholeGather]) -> tuple[int, ...]:
    """The ranks that can have all inputs whole: those of the input that most ranks share. Other inputs are
    shared by some of these, and again by others of them; or each rank has them whole."""
    cut = [gather.holders for gather in gathers if gather.lane]
    most = max(cut or [gathers[0].holders], key=len)
    for holders in cut:
        if not set(holders) <= set(most):
            raise _core.Misuse(
                f"{product.name}: the ranks that share one of {', '.join(product.inputs)} ({list(most)}) do "
                f"not include those that share another ({list(holders)}), so nobody knows who makes it; "
                "make it of tensors of one mesh"
            )
    return most


def _all(waits: Sequence[Callable[[], object]]) -> None:
    with torch.no_grad():
        for wait in waits:
            wait()
