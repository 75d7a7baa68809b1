"""Which storages stand for what, while a loader runs: published elements, results, constants."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..boxes.joined import Joined, cut
from ..boxes.strides import NotBoxes, View, compose
from .marks import Mark, computed
from .owners import storage, view
from .picked import runs


class Marked:
    """Marks by storage. What is marked is kept alive: a storage is known by where it is."""

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}
        self._joined: dict[int, tuple[Joined, tuple[Mark, ...]]] = {}
        self._constants: set[int] = set()
        self._alive: list[torch.Tensor] = []

    def of(self, tensor: torch.Tensor) -> Mark | None:
        """What a tensor stands for."""
        return self._marks.get(storage(tensor))

    def put(self, tensor: torch.Tensor, mark: Mark) -> None:
        """Marks all of a tensor's storage."""
        self.changed([tensor])
        self._marks[storage(tensor)] = mark
        self._alive.append(tensor)

    def changed(self, tensors: Iterable[torch.Tensor]) -> None:
        """Forgets what tensors were made of, as they are no more."""
        for tensor in tensors:
            self._joined.pop(storage(tensor), None)
            self._constants.discard(storage(tensor))

    def same(self, made: torch.Tensor, of: torch.Tensor, mark: Mark) -> None:
        """Marks the same elements in another storage, perhaps under another type."""
        dtypes = mark.dtypes if made.dtype == mark.dtypes[-1] else (*mark.dtypes, made.dtype)
        copies = (*mark.copies, (view(made), view(of)))
        self.put(made, replace(mark, dtypes=dtypes, copies=copies))

    def join(self, made: torch.Tensor, tensors: Sequence[torch.Tensor], dim: int) -> None:
        """Notes which published elements a joined tensor has, if it has nothing else."""
        marks = tuple(m for t in tensors if (m := self.of(t)) and m.op is None)
        apart = len(marks) == len(tensors) and not any(storage(t) in self._joined for t in tensors)
        if apart and all(t.dtype == made.dtype and t.ndim == made.ndim for t in tensors):
            parts = tuple(view(t) for t in tensors)
            self._joined[storage(made)] = Joined(view(made), dim % made.ndim, parts), marks

    def pick(
        self, made: torch.Tensor, tensor: torch.Tensor, dim: int, numbers: list[int], mark: Mark
    ) -> None:
        """Marks slices of a tensor: each run of them as if it had been joined with the others."""
        picked = [tensor.narrow(dim, *run) for run in runs(numbers)]
        if len(picked) == 1:
            self.same(made, picked[0], mark)
        else:
            self.put(made, computed([mark], "aten::index_select"))
            self.join(made, picked, dim)

    def sources(
        self, tensor: torch.Tensor, mark: Mark, target: View
    ) -> list[tuple[Mark, View, View]]:
        """What a copy of a tensor takes from where: of a joined one, from each of those in it."""
        # An empty copy counts: a rank may hold nothing but padding of a vocabulary.
        if storage(tensor) in self._joined and 0 not in tensor.shape:
            joined, marks = self._joined[storage(tensor)]
            try:
                cuts = list(cut(joined, view(tensor), target))
            except NotBoxes:
                return [(mark, view(tensor), target)]  # computed, as far as can be told
            return [(*_source(of, marks[number]), to) for number, of, to in cuts]
        return [(*_source(view(tensor), mark), target)]

    def uniform(self, made: torch.Tensor) -> None:
        """Notes that a tensor is one constant throughout."""
        self._constants.add(storage(made))
        self._alive.append(made)

    def constant(self, tensor: torch.Tensor) -> Any:
        """The constant that a tensor is throughout; None if that is not known."""
        if storage(tensor) not in self._constants or not tensor.numel() or tensor.device.type == "meta":
            return None
        return tensor.flatten()[0].item()


def _source(source: View, mark: Mark) -> tuple[Mark, View]:
    """Where in its published tensor a view of it, or of a copy of it, lies."""
    try:
        for copy, of in reversed(mark.copies):
            source = compose(source, copy, of)
    except NotBoxes as wrong:
        mark = replace(mark, rearranged=str(wrong))
    return mark, source
