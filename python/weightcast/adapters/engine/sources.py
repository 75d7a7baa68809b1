"""What a trainer publishes: a module's tensors where they lie, or copies of what a `WeightSource` yields."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ... import _core
from ...layout import Layout
from ...replica import Replica
from ..catalog import Catalog, catalog_of

#: Changes a layout before it is registered: `lambda layout: layout.quantise("*_proj.weight")`, say.
Rules = Callable[[Layout], Any]


class InPlace:
    """A module's own tensors. Of a sharded module every rank publishes its shard, and nothing is gathered;
    of one that each rank has whole, rank 0 publishes."""

    def __init__(self, module: nn.Module, rank: int) -> None:
        self._module = module
        sharded = any(isinstance(p, DTensor) for p in module.parameters())
        #: Whether this rank has a part in publishing.
        self.publishes = sharded or rank == 0
        self._sharded = sharded

    def catalog(self) -> Catalog:
        """What will be published."""
        return catalog_of(self._module)

    def replica(self, name: str) -> Replica:
        """Who this rank is."""
        from ... import torch as wct

        return wct.replica(name, self._module) if self._sharded else Replica(name)

    def layout(self) -> Layout:
        """The tensors, where they lie."""
        from ... import torch as wct

        return wct.layout(self._module)

    def refresh(self) -> None:
        """Nothing: what is published is what the optimizer changes."""


class Copied:
    """Full tensors that a vLLM `WeightSource` yields, copied into host memory of rank 0. Every rank
    iterates, since yielding is a collective; host memory for the whole model is needed on rank 0."""

    def __init__(self, source: Any, rank: int) -> None:
        self._source = source
        self.publishes = rank == 0
        listed = source.metadata
        self._metadata = list(listed() if callable(listed) else listed)
        self._tensors: dict[str, torch.Tensor] = {}
        if self.publishes:
            self._tensors = {m.name: torch.empty(m.shape, dtype=m.dtype) for m in self._metadata}

    def catalog(self) -> Catalog:
        """What will be published."""
        return catalog_of({m.name: (tuple(m.shape), m.dtype) for m in self._metadata})

    def replica(self, name: str) -> Replica:
        """Who rank 0 is."""
        return Replica(name)

    def layout(self) -> Layout:
        """The copies."""
        listed = Layout()
        for name, tensor in self._tensors.items():
            listed.add(tensor, name)
        return listed

    def refresh(self) -> None:
        """Copies what the source yields now."""
        full = getattr(self._source, "iter_full", None)
        missing = set(self._tensors)
        for name, tensor in full() if full is not None else self._source:
            if self.publishes:
                missing.discard(name)
                self._take(name, tensor)
        if missing:
            raise _core.LayoutMismatch(
                f"the source has not yielded {min(missing)}, nor {len(missing) - 1} others that its "
                "metadata lists"
            )

    def _take(self, name: str, tensor: torch.Tensor) -> None:
        ours = self._tensors.get(name)
        if ours is None:
            raise _core.LayoutMismatch(f"the source yields {name}, which its metadata does not list")
        if ours.shape != tensor.shape or ours.dtype != tensor.dtype:
            raise _core.LayoutMismatch(
                f"the source yields {name} as {tuple(tensor.shape)} {tensor.dtype}; its metadata says "
                f"{tuple(ours.shape)} {ours.dtype}"
            )
        ours.copy_(tensor)


def source_of(source: Any, rank: int) -> InPlace | Copied:
    """A module, vLLM's `ModuleSource` of one, an `Adapter`, or any other `WeightSource`."""
    from .adapter import Adapter, AdapterInPlace

    if isinstance(source, Adapter):
        return AdapterInPlace(source, rank)
    if isinstance(source, nn.Module):
        return InPlace(source, rank)
    module = getattr(source, "_module", None)
    if type(source).__name__ == "ModuleSource" and isinstance(module, nn.Module):
        return InPlace(module, rank)
    if hasattr(source, "metadata"):
        return Copied(source, rank)
    raise _core.Misuse(f"source is a torch module or a vLLM WeightSource, not {type(source).__name__}")
