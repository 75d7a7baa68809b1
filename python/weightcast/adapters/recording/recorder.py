"""Records what a loader does with published tensors, by feeding it marked ones.

A marked tensor lies on torch's meta device in a storage of its own. Slices, views and transposed
chunks of it keep offset and strides, so where the loader finally writes `target.copy_(view)`, the
storage says which published tensor it is, and offset, sizes and strides say which box of it. The
write is recorded and not made: the engine's memory stays as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...memory import TORCH
from ..boxes.joined import Joined, cut
from ..boxes.strides import NotBoxes, View, compose
from ..catalog import Entry
from .owners import Owners, storage

#: safetensors names back to torch's types.
DTYPES = {
    name: getattr(torch, known) for known, name in TORCH.items() if hasattr(torch, known)
} | {"BOOL": torch.bool}

#: What an op is called with.
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_aten = torch.ops.aten
_COPIES = {_aten.copy_.default}
_FILLS = {_aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default}
#: Ops that make the same elements anew, perhaps in another type.
_SAME = {_aten._to_copy.default, _aten.clone.default}
#: Ops that take a value out of a tensor.
_VALUES = {_aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default}


class Refused(Exception):
    """The loader looks at values, which a recording does not have."""


@dataclass(frozen=True)
class Mark:
    """What a marked storage stands for."""

    tensor: str
    base: View
    #: Its dtype as published, then those it was cast to on the way.
    dtypes: tuple[torch.dtype, ...]
    #: The op that computed it, if it is not the published elements any more.
    op: str | None = None
    #: Why it is no strided view of the published elements, though it has nothing but them.
    rearranged: str | None = None
    #: Copies on the way, the first one first: the copy, and the view that it is of.
    copies: tuple[tuple[View, View], ...] = ()


@dataclass(frozen=True)
class Write:
    """A copy that the loader made into a parameter."""

    parameter: str
    target: View
    #: None: of something that no published tensor went into.
    mark: Mark | None
    source: View | None
    dtype: torch.dtype


@dataclass(frozen=True)
class Fill:
    """A fill with a constant that the loader made."""

    parameter: str
    target: View
    value: Any
    #: Writes that came before.
    after: int


@dataclass
class Recording:
    """What a loader did."""

    writes: list[Write] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    #: Other changes that it would have made to a parameter in place, by op.
    changes: list[tuple[str, str]] = field(default_factory=list)
    #: Published tensors that reached a parameter's loader, with the parameter.
    reached: dict[str, str] = field(default_factory=dict)


def view(tensor: torch.Tensor) -> View:
    """A tensor's place in its storage."""
    return View(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


class Recorder(TorchDispatchMode):
    """While active, writes into `targets` are recorded and not made."""

    def __init__(self, targets: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.recording = Recording()
        self.feeding: str | None = None
        self._owners = Owners(targets)
        self._marks: dict[int, Mark] = {}
        self._joined: dict[int, tuple[Joined, tuple[Mark, ...]]] = {}
        self._alive: list[torch.Tensor] = list(targets.values())

    def feed(
        self, catalog: Mapping[str, Entry], known: Mapping[str, str]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Marked tensors of all published ones that have a name in `known`, under that name, as
        `load_weights` wants them."""
        for name, entry in catalog.items():
            if name not in known:
                continue
            self.feeding = name
            dtype = DTYPES[entry.dtype]
            marked = torch.empty(entry.shape, dtype=dtype, device="meta")
            self._mark(marked, Mark(name, view(marked), (dtype,)))
            yield known[name], marked
        self.feeding = None

    def mark_of(self, tensor: torch.Tensor) -> Mark | None:
        """What published tensor this is a piece of."""
        return self._marks.get(storage(tensor)) if tensor.device.type == "meta" else None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        marks = [m for t in tensors_in((args, kwargs)) if (m := self.mark_of(t))]
        target = self._target(func, args)
        if target is not None:
            self._written(target, func, args)
            return args[0]
        if not marks:
            return func(*args, **kwargs)
        if func in _VALUES:
            raise Refused(f"{marks[0].tensor}: its loader looks at values ({func.name()})")
        if func in _SAME:
            return self._same(func, args, kwargs, marks[0])
        if func in _COPIES:
            args[0].untyped_storage()  # a temporary: whatever comes of it was computed
            self._mark(args[0], _computed(marks[0], "aten::copy_ into a temporary"))
            return args[0]
        made = func(*args, **kwargs)
        if func is _aten.cat.default:
            self._join(made, *args)
        for tensor in tensors_in(made):
            if self.mark_of(tensor) is None:
                self._mark(tensor, _computed(marks[0], func.name()))
        return made

    def _target(self, func: Any, args: Args) -> str | None:
        """The parameter that an op writes to, if it does."""
        written = func._schema.arguments[:1]
        if not written or not written[0].alias_info or not written[0].alias_info.is_write:
            return None
        if not args or not isinstance(args[0], torch.Tensor):
            return None
        return self._owners.of(args[0])

    def _written(self, parameter: str, func: Any, args: Args) -> None:
        if func in _FILLS:
            value = args[1] if len(args) > 1 else 0
            after = len(self.recording.writes)
            self.recording.fills.append(Fill(parameter, view(args[0]), value, after))
        elif func not in _COPIES:
            self.recording.changes.append((parameter, func.name()))
        else:
            for mark, source, target in self._copied(args[1], view(args[0])):
                self.recording.writes.append(
                    Write(parameter, target, mark, source, args[0].dtype)
                )

    def _copied(
        self, tensor: torch.Tensor, target: View
    ) -> list[tuple[Mark | None, View | None, View]]:
        """What is copied where: of a joined tensor, each of those in it."""
        mark = self.mark_of(tensor)
        # An empty copy counts: a rank may hold nothing but padding of a vocabulary.
        if mark is None:
            return [(None, None, target)]
        if storage(tensor) in self._joined and 0 not in tensor.shape:
            joined, marks = self._joined[storage(tensor)]
            try:
                cuts = list(cut(joined, view(tensor), target))
            except NotBoxes:
                return [(mark, view(tensor), target)]  # computed, as far as can be told
            return [(*self._source(of, marks[number]), to) for number, of, to in cuts]
        return [(*self._source(view(tensor), mark), target)]

    def _join(self, made: torch.Tensor, tensors: Any, dim: int = 0) -> None:
        """Notes which published elements a joined tensor has, if it has nothing else."""
        marks = tuple(m for t in tensors if (m := self.mark_of(t)) and m.op is None)
        apart = len(marks) == len(tensors) and not any(storage(t) in self._joined for t in tensors)
        if apart and all(t.dtype == made.dtype and t.ndim == made.ndim for t in tensors):
            parts = tuple(view(t) for t in tensors)
            self._joined[storage(made)] = Joined(view(made), dim % made.ndim, parts), marks

    def _same(self, func: Any, args: Args, kwargs: Kwargs, mark: Mark) -> torch.Tensor:
        """The same elements in another storage, perhaps under another type."""
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("meta")}
        made = func(*args, **kwargs)
        dtypes = mark.dtypes if made.dtype == mark.dtypes[-1] else (*mark.dtypes, made.dtype)
        copies = (*mark.copies, (view(made), view(args[0])))
        self._mark(made, replace(mark, dtypes=dtypes, copies=copies))
        return made

    def _source(self, source: View, mark: Mark) -> tuple[Mark, View]:
        """Where in its published tensor a view of it, or of a copy of it, lies."""
        try:
            for copy, of in reversed(mark.copies):
                source = compose(source, copy, of)
        except NotBoxes as wrong:
            mark = replace(mark, rearranged=str(wrong))
        return mark, source

    def _mark(self, tensor: torch.Tensor, mark: Mark) -> None:
        self._marks[storage(tensor)] = mark
        self._alive.append(tensor)


def _computed(mark: Mark, op: str) -> Mark:
    return replace(mark, op=mark.op or op)


def tensors_in(of: Any) -> Iterator[torch.Tensor]:
    """All tensors in an op's arguments or results."""
    if isinstance(of, torch.Tensor):
        yield of
    elif isinstance(of, Mapping):
        yield from tensors_in(list(of.values()))
    elif isinstance(of, list | tuple):
        for item in of:
            yield from tensors_in(item)
