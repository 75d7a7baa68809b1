"""A module of which some tensors are made of others, whole, as the source of a trainer."""

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from .. import layout as layouts
from ..adapters.catalog import Catalog, catalog_of
from ..host_copies import HostCopies, Version
from ..memory import TORCH
from ..names import NameMap, Rename
from ..pinned import PinnedMemory
from ..pipeline import GIB, Pipeline, Stage, StageFailed, Work
from ..progress import Progress, ProgressBar
from ..replica import Replica
from .agreement import raise_together, refuse_other_plans
from .casts import Cast, converted
from .dry_run import outputs
from .flat import flats
from .marks import refuse
from .module import add_module, names_of, published_by, read_only
from .planned import Planned, Ranks, plan
from .recipes import Recipe, check, products
from .replicas import copy_of
from .streams import StageStreams
from .tensors import held, local_of

log = logging.getLogger("weightcast")


def gathered(
    module: nn.Module,
    recipes: Sequence[Recipe | Cast],
    *,
    names: NameMap | None = None,
    rename: Rename | None = None,
    buffers: bool = True,
    budget: int = GIB,
    overlap: bool = True,
    progress: Progress | None = None,
) -> "Gathered":
    """A module as the source of a trainer: what `recipes` make of its tensors, and all its other tensors as
    `layout` has them, in place.

    `recipes` are made by `recipe`, and by `cast` for what is converted shard by shard. The tensors that a
    recipe takes are gathered whole, to one rank. The recipe's function runs there, and what it returns is
    copied into host memory, page-locked for a GPU, which is what engines read. The work is shared out over
    the ranks by bytes. Gathering one tensor, making another and copying a third go on at the same time. What
    that takes beside the module and the host memory fits into `budget` bytes on each rank, or is of one use
    of one recipe alone; without `overlap` it always is.

    All ranks call it with the same arguments. `names`, `rename` and `buffers` are as in `layout`, for the
    tensors in place. `progress` is called as `progress(sent, total)`, in bytes that this rank sends, in the
    thread that publishes.
    """
    return Gathered(
        module,
        recipes,
        in_place={"names": names, "rename": rename, "buffers": buffers},
        pipeline=Pipeline(budget, overlap=overlap),
        progress=progress,
    )


class Gathered:
    """A module of which some tensors are made of others. Made by `gathered`.

    Register `layout()`, and publish: each `Handle.publish` gathers, makes and copies first, all ranks
    together. `Publisher` and the trainer of a live engine take it as their `source`.
    """

    def __init__(
        self,
        module: nn.Module,
        recipes: Sequence[Recipe | Cast],
        *,
        in_place: dict[str, Any],
        pipeline: Pipeline,
        progress: Progress | None,
    ) -> None:
        self._module = module.module if isinstance(module, DistributedDataParallel) else module
        if flats(self._module):
            raise _core.Misuse(
                "gathered() knows no flat parameters (FSDP1); shard with torch.distributed.fsdp.fully_shard, "
                "or publish them in place (weightcast.torch.layout)"
            )
        self._pipeline, self._progress, self._buffers = pipeline, progress, in_place["buffers"]
        tensors = self._tensors()
        self._ranks = Ranks(tensors.values())
        self._products = products([one for one in recipes if isinstance(one, Recipe)], tensors)
        taken = frozenset(name for product in self._products for name in product.inputs)
        self._in_place = {**in_place, "but": taken}
        for one in held(self._module, self._buffers):
            if one.name in taken:
                refuse(one.name, one.owner, one.tensor)
        memory = PinnedMemory()
        self._planned = plan(self._products, tensors, self._ranks, memory)
        published = names_of(self._module, **self._in_place)
        rest = {n: t for n, t in self._module.named_parameters() if n in tensors and n in published}
        casts = [one for one in recipes if isinstance(one, Cast)] if self.publishes else []
        self._converted = list(converted(casts, rest, memory))
        #: Where the module's tensors lie.
        self.devices = {local_of(tensor).device for tensor in tensors.values()}
        self._transforms, self._sends = StageStreams(self.devices), StageStreams(self.devices)
        self._copies: WeakSet[_Filled] = WeakSet()
        self._agreed = False
        #: Whether a refresh has run that nothing has published yet.
        self.fresh = False

    @property
    def publishes(self) -> bool:
        """Whether this rank has a part in publishing: of a module that each rank has whole, rank 0 alone."""
        return self._ranks.publishes

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that this rank serves from."""
        made = [host for planned in self._planned for host in planned.host]
        once = [one.host for one in self._converted if one.host is not None]
        return sum(int(host.nbytes) for host in made + once)

    @property
    def peak(self) -> int:
        """The most bytes beside the module and the host memory that the last refresh admitted at a time."""
        return self._pipeline.peak

    # What is published

    def catalog(self) -> Catalog:
        """What will be published, by all ranks."""
        casts = {one.name: one.dtype for one in self._converted}
        found = published_by(self._module, **self._in_place, casts=casts)
        made = {
            name: described
            for product in self._products
            for name, described in zip(product.outputs, product.made, strict=True)
        }
        if twice := min(found.keys() & made.keys(), default=None):
            raise _core.Misuse(
                f"{twice} is made by a recipe, and the module publishes one of that name in place: give one "
                "of them another name, or leave the module's out (rename=)"
            )
        return found | catalog_of(made)

    def layout(self) -> layouts.Layout:
        """The tensors in place, and the host memory of what this rank makes."""
        self.catalog()
        listed = layouts.Layout()
        listed.copies = copies = _Filled(self)
        once = {one.name: one.host for one in self._converted if one.host is not None}
        add_module(listed, self._module, **self._in_place, instead=once)
        published = names_of(self._module, **self._in_place)
        for one in self._converted:
            for name in published.get(one.name, ()) if one.host is None else ():
                listed.cast(name, TORCH[str(one.dtype).removeprefix("torch.")])
        for planned in self._planned:
            for name, host in zip(planned.product.outputs, planned.host, strict=False):
                _add_made(listed, name, host)
        self._copies.add(copies)
        return listed

    def replica(self, name: str, **labels: Any) -> Replica:
        """Which shard of which replica this rank is. `labels` go to `Replica`."""
        peers, mesh = self._ranks.peers, self._ranks.mesh
        mine = copy_of(self._module)
        if mesh is None or set(mine.ranks) == set(peers):
            return mine.replica(name, **labels)
        if len(peers) < mesh.size():
            raise _core.Misuse(
                "parameters lie on device meshes with copies along different dimensions, so nobody knows who "
                "makes what for which copy; build weightcast.Replica by hand"
            )
        # A largest mesh without copies: its ranks are the shards.
        return Replica(name, shard=peers.index(self._ranks.own), num_shards=len(peers), **labels)

    # A refresh

    def refresh(self) -> None:
        """Gathers, makes and copies what the module has now. All ranks call it together, as `Handle.publish`
        does unless it was called since the last one. Returns when the last byte is in host memory.

        Raises `StageFailed` on all ranks if a stage fails on one; it names the tensor, the stage and the
        rank. Ranks that wait in a gather of which another rank's part has failed raise only by the process
        group's own timeout. Raises `Misuse` while a version is published: its readers read the host memory.
        """
        self._refuse_while_read()
        self.fresh = False
        if not self._agreed:
            refuse_other_plans(self._ranks.mesh, self._products)
            self._agreed = True
        began = time.monotonic()
        failed = self._run()
        if failed is not None and failed.stage is Stage.GATHER:
            # Gathers of this rank and the others' no longer fit together, so there is no agreeing either.
            raise failed
        raise_together(self._ranks.mesh, failed)
        self.fresh = True
        log.info(
            "%d tensors made, %d bytes of them here, in %.2f s; at most %d bytes were under way",
            len(self._products), self.nbytes, time.monotonic() - began, self.peak,
        )

    def _refuse_while_read(self) -> None:
        for copies in self._copies:
            if (version := copies.held()) is not None:
                raise _core.Misuse(
                    f"the host memory of what is to be made holds version {version[0]}: unpublish it first"
                )

    def _run(self) -> StageFailed | None:
        """The error, with this rank's number."""
        collective = self._ranks.mesh is not None
        try:
            self._pipeline.run(self._works(), collective=collective, progress=self._progress)
        except StageFailed as error:
            if not collective:
                return error
            failed = StageFailed(error.tensor, error.stage, error.reason, self._ranks.own)
            failed.__cause__ = error.__cause__
            return failed
        finally:
            if isinstance(self._progress, ProgressBar):
                self._progress.close()
        return None

    def _tensors(self) -> dict[str, torch.Tensor]:
        """The module's tensors by its own names, as they are now."""
        return {one.name: one.tensor for one in held(self._module, self._buffers)}

    def _works(self) -> list[Work]:
        """This rank's part, in the order of all ranks."""
        tensors = self._tensors()
        made = [
            self._work(planned, [tensors[name] for name in planned.product.inputs])
            for planned in self._planned
            if planned.is_here or planned.lane
        ]
        once = [one for one in self._converted if one.host is not None]
        return made + [one.work(tensors[one.name], self._transforms, self._sends) for one in once]

    def _work(self, planned: Planned, tensors: list[torch.Tensor]) -> Work:
        return Work(
            planned.item(tensors),
            gather=partial(planned.begin, tensors),
            transform=partial(self._make, planned, tensors),
            send=partial(self._send, planned),
            lane=planned.lane,
            nbytes=planned.product.nbytes,
        )

    def _make(
        self, planned: Planned, lying: list[torch.Tensor], whole: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], int]:
        made = self._transforms.run(lambda: outputs(planned.product.recipe.make(*whole)))
        check(planned.product, made)
        # A view of a parameter that lies here whole takes no memory.
        own = {local_of(tensor).untyped_storage().data_ptr() for tensor in lying}
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in made}
        return made, sum(nbytes for where, nbytes in storages.items() if where not in own)

    def _send(self, planned: Planned, made: list[torch.Tensor]) -> None:
        def copy() -> None:
            for host, tensor in zip(planned.host, made, strict=True):
                host.copy_(tensor, non_blocking=True)

        self._sends.run(copy)


class _Filled(HostCopies):
    """Host memory that is filled before each publication, and copies of tensors in place on a GPU."""

    def __init__(self, source: Gathered) -> None:
        super().__init__()
        self._source = source

    def __bool__(self) -> bool:
        return True

    def out(self) -> None:
        """Fills it, unless that was done since the last publication."""
        if not self._source.fresh:
            self._source.refresh()
        self._source.fresh = False
        super().out()

    def _devices(self) -> set[Any]:
        return super()._devices() | self._source.devices

    def into(self, version: Version | None) -> None:
        """Refuses: what was made is not made back."""
        raise _core.Misuse("a layout of gathered() can be published, not filled: use weightcast.torch.layout")


def _add_made(listed: layouts.Layout, name: str, host: torch.Tensor) -> None:
    """Adds what was made, as memory that nothing is read into."""
    if host.dtype == getattr(torch, "float4_e2m1fn_x2", None):
        listed.add(host, name)  # torch counts bytes of two elements, as `add` knows of its tensors
        return
    array, dtype = read_only(host)
    listed.add(array, name, dtype=dtype)
