"""What a trainer publishes: a module's tensors where they lie, what is made of them, or copies of what a
`WeightSource` yields."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ... import _core
from ...layout import Layout
from ...pipeline import GIB
from ...replica import Replica
from ..catalog import Catalog, catalog_of
from .copied import Copied

if TYPE_CHECKING:
    from ...torch import Gathered

#: Changes a layout before it is registered: `lambda layout: layout.quantise("*_proj.weight")`, say.
Rules = Callable[[Layout], Any]


class InPlace:
    """A module's own tensors. Of a sharded module every rank publishes its shard, and nothing is gathered;
    of one that each rank has whole, rank 0 publishes."""

    def __init__(self, module: nn.Module, rank: int, options: Mapping[str, Any] | None = None) -> None:
        """`options` are arguments of `weightcast.torch.layout`."""
        from ...torch.flat import flats
        from ...torch.tensors import held

        self._module, self._options = module, dict(options or {})
        self._flat = flats(module)
        sharded = bool(self._flat) or any(isinstance(one.tensor, DTensor) for one in held(module, False))
        #: Whether this rank has a part in publishing.
        self.publishes = sharded or rank == 0
        self._sharded = sharded

    def catalog(self) -> Catalog:
        """What will be published."""
        if self._flat:
            from ...torch.module import published_by

            return published_by(self._module, names=None, rename=None, buffers=True)
        module = self._module
        return catalog_of(module.module if isinstance(module, DistributedDataParallel) else module)

    def replica(self, name: str) -> Replica:
        """Who this rank is."""
        from ... import torch as wct

        return wct.replica(name, self._module) if self._sharded else Replica(name)

    def layout(self) -> Layout:
        """The tensors, where they lie."""
        from ... import torch as wct

        return wct.layout(self._module, **self._options)

    def refresh(self) -> None:
        """Nothing: what is published is what the optimizer changes."""


class Made:
    """A module of which some tensors are made of others (`weightcast.torch.gathered`)."""

    def __init__(self, source: "Gathered") -> None:
        self._source = source
        #: Whether this rank has a part in publishing.
        self.publishes = source.publishes

    def catalog(self) -> Catalog:
        """What will be published."""
        return self._source.catalog()

    def replica(self, name: str) -> Replica:
        """Who this rank is."""
        return self._source.replica(name)

    def layout(self) -> Layout:
        """The tensors in place, and the host memory of what is made."""
        return self._source.layout()

    def refresh(self) -> None:
        """Nothing: publishing makes them, and tells all ranks if that fails on one."""


def source_of(source: Any, rank: int, budget: int = GIB) -> InPlace | Made | Copied:
    """A module, vLLM's `ModuleSource` of one, what `weightcast.torch.gathered` makes of one, an `Adapter`, or
    any other `WeightSource`, which is copied under a budget of bytes."""
    from ...torch import Gathered
    from .adapter import Adapter, AdapterInPlace

    if isinstance(source, Copied):
        return source
    if isinstance(source, Adapter):
        return AdapterInPlace(source, rank)
    if isinstance(source, nn.Module):
        return InPlace(source, rank)
    if isinstance(source, Gathered):
        return Made(source)
    module = getattr(source, "_module", None)
    if type(source).__name__ == "ModuleSource" and isinstance(module, nn.Module):
        return InPlace(module, rank)
    if hasattr(source, "metadata"):
        return Copied(source, rank, budget)
    raise _core.Misuse(
        "source is a torch module, weightcast.torch.gathered() of one, or a vLLM WeightSource, not "
        f"{type(source).__name__}"
    )
