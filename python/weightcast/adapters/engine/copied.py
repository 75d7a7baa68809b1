"""Copies of the full tensors that a vLLM `WeightSource` yields."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ... import _core
from ...layout import Layout
from ...pinned import PinnedMemory
from ...pipeline import GIB, Gathering, Item, Pipeline, StageFailed, Work
from ...replica import Replica
from ...torch.streams import StageStreams, end_here
from ..catalog import Catalog, catalog_of


class Copied:
    """Full tensors that a vLLM `WeightSource` yields, copied into host memory of rank 0. Every rank iterates,
    since yielding is a collective; host memory for the whole model is needed on rank 0.

    The source goes on to the next tensor while one is copied. What has been yielded and is not copied yet
    fits into `budget` bytes, or is one tensor; with a budget of 0 the source goes on when that is copied.
    """

    def __init__(self, source: Any, rank: int, budget: int = GIB) -> None:
        self._source = source
        self.publishes = rank == 0
        listed = source.metadata
        self._metadata = list(listed() if callable(listed) else listed)
        self._pipeline = Pipeline(budget)
        self._tensors: dict[str, torch.Tensor] = {}
        if self.publishes:
            memory, device = PinnedMemory(), "cuda" if torch.cuda.is_available() else "cpu"
            self._tensors = {m.name: memory.sized(m.shape, m.dtype, device) for m in self._metadata}

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
        yielded = iter(full() if full is not None else self._source)
        if not self.publishes:
            _exhaust(yielded)
            return
        try:
            _Pass(self._tensors, self._pipeline, yielded).run([m.name for m in self._metadata])
        except StageFailed as failed:
            # Other ranks wait in what is left to be yielded.
            _exhaust(yielded)
            if isinstance(failed.__cause__, _core.WeightcastError):
                raise failed.__cause__ from None
            raise


@dataclass(frozen=True)
class Listed:
    """A tensor that a source yields."""

    name: str
    shape: torch.Size
    dtype: torch.dtype


class Streamed(Copied):
    """Full tensors of a loop that hands out an iterator for each version, on rank 0: `first` tells what there
    is, by the names, shapes and types of what it yields. Its tensors are the first version."""

    def __init__(self, first: Iterator[tuple[str, torch.Tensor]], budget: int = GIB) -> None:
        self.publishes = True
        self._pipeline = Pipeline(budget)
        memory = PinnedMemory()
        self._tensors = {}
        for name, tensor in first:
            if name in self._tensors:
                _exhaust(first)
                raise _core.LayoutMismatch(f"the source yields {name} twice")
            self._tensors[name] = memory.empty(tensor)
            self._tensors[name].copy_(tensor.detach())
        self._metadata = [Listed(name, t.shape, t.dtype) for name, t in self._tensors.items()]
        self._source: Any = None

    def next(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """What the next version is made of."""
        self._source = iterator

    def refresh(self) -> None:
        """Copies what was handed out; nothing for the first version."""
        if self._source is not None:
            super().refresh()


class _Pass:
    """One pass over what the source yields."""

    def __init__(
        self,
        tensors: dict[str, torch.Tensor],
        pipeline: Pipeline,
        yielded: Iterator[tuple[str, torch.Tensor]],
    ) -> None:
        self._tensors, self._pipeline, self._yielded = tensors, pipeline, yielded
        self._missing = set(tensors)
        self._sends = StageStreams(torch.device("cuda", n) for n in range(torch.cuda.device_count()))

    def run(self, names: list[str]) -> None:
        """Copies all. A source yields in the order of its metadata, whose sizes the budget goes by."""
        self._pipeline.run([self._work(name) for name in names])
        extra = next(self._yielded, None)
        if extra is not None:
            _exhaust(self._yielded)
            raise _core.LayoutMismatch(f"the source yields {extra[0]}, which its metadata does not list")

    def _work(self, name: str) -> Work:
        nbytes = self._tensors[name].nbytes
        # The name, and the number of changes made to a tensor, as the tensor was yielded.
        noted: dict[str, Any] = {}
        return Work(
            Item(name, gathering=nbytes, gathered=nbytes, slot=name),
            gather=partial(self._next, name, noted),
            transform=lambda tensors: (tensors, sum(tensor.nbytes for tensor in tensors)),
            send=partial(self._copy, noted),
            nbytes=nbytes,
        )

    def _next(self, expected: str, noted: dict[str, Any]) -> Gathering:
        one = next(self._yielded, None)
        if one is None:
            raise _core.LayoutMismatch(
                f"the source has not yielded {min(self._missing)}, nor {len(self._missing) - 1} others that "
                "its metadata lists"
            )
        name, tensor = one
        self._check(name, tensor)
        if name != expected:
            self._pipeline.alone()
        noted.update(name=name, changes=_changes(tensor))
        return Gathering([tensor.detach()], end_here([tensor]))

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        ours = self._tensors.get(name)
        if ours is None:
            raise _core.LayoutMismatch(f"the source yields {name}, which its metadata does not list")
        if ours.shape != tensor.shape or ours.dtype != tensor.dtype:
            raise _core.LayoutMismatch(
                f"the source yields {name} as {tuple(tensor.shape)} {tensor.dtype}; its metadata says "
                f"{tuple(ours.shape)} {ours.dtype}"
            )
        if name not in self._missing:
            raise _core.LayoutMismatch(f"the source yields {name} twice")
        self._missing.discard(name)

    def _copy(self, noted: dict[str, Any], tensors: list[torch.Tensor]) -> None:
        name, [tensor] = noted["name"], tensors
        self._sends.run(lambda: self._tensors[name].copy_(tensor, non_blocking=True))
        if _changes(tensor) != noted["changes"]:
            raise _core.LayoutMismatch(
                f"the source has changed {name} after it yielded that, while it was copied; have it yield "
                "memory of its own each time, or set budget=0: it then goes on when a tensor is copied"
            )


def _changes(tensor: torch.Tensor) -> int:
    """How often operations have changed the tensor's memory, as far as torch counts that."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _exhaust(yielded: Iterator[Any]) -> None:
    for _ in yielded:
        pass
