"""Records what a loader does with published tensors, by feeding it marked ones.

A marked tensor lies on torch's meta device in a storage of its own. Slices, views and transposed
chunks of it keep offset and strides, so where the loader finally writes `target.copy_(view)`, the
storage says which published tensor it is, and offset, sizes and strides say which box of it. The
write is recorded and not made: the engine's memory stays as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...memory import TORCH
from ..catalog import Entry
from .marked import Marked
from .marks import Fill, Mark, Recording, Write, computed
from .ops import COPIES, FILLS, LIKE, SAME, UNIFORM, VALUES, changed, on_meta, tensors_in, views
from .owners import Owners, view
from .picked import picked
from .reads import read_of

#: safetensors names back to torch's types.
DTYPES = {
    name: getattr(torch, known) for known, name in TORCH.items() if hasattr(torch, known)
} | {"BOOL": torch.bool}

#: What an op is called with.
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_aten = torch.ops.aten


class Refused(Exception):
    """The loader looks at values, which a recording does not have."""


class Recorder(TorchDispatchMode):
    """While active, writes into `targets` are recorded and not made."""

    def __init__(self, targets: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.recording = Recording()
        self.feeding: str | None = None
        self._targets = targets
        self._owners = Owners(targets)
        self._marked = Marked()

    def feed(
        self, catalog: Mapping[str, Entry], known: Mapping[str, str]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Marked tensors of all published ones that have a name in `known`, under that name, as
        `load_weights` wants them.

        To be called before the recorder is active: the tensors are made at once, on the meta device. A
        loader that is not followed, as it runs in a thread of its own, then fails on them; it would write
        elements of the CPU's into the engine."""
        fed = []
        for name, entry in catalog.items():
            if name in known:
                dtype = DTYPES[entry.dtype]
                marked = torch.empty(entry.shape, dtype=dtype, device="meta")
                self._marked.put(marked, Mark(name, view(marked), (dtype,)))
                fed.append((name, known[name], marked))
        return self._fed(fed)

    def _fed(self, fed: list[tuple[str, str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for self.feeding, name, marked in fed:
            yield name, marked
        self.feeding = None

    def mark_of(self, tensor: torch.Tensor) -> Mark | None:
        """What published tensor this is a piece of."""
        return self._marked.of(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        written = changed(func, args, kwargs)
        targets = [name for t in written if (name := self._owners.of(t)) is not None]
        if targets:
            self._written(targets, func, args)
            return written[0]
        if views(func):
            return func(*args, **kwargs)
        read = () if func in LIKE else tensors_in((args, kwargs))
        marks = [m for t in read if (m := self._found(t, func))]
        if not marks:
            return self._unmarked(func, args, kwargs)
        if func in VALUES:
            raise Refused(f"{marks[0].tensor}: its loader looks at values ({func.name()})")
        whole = len(marks) == 1 and marks[0].op is None
        if whole and func in SAME:
            made = func(*args, **on_meta(kwargs))
            self._marked.same(made, args[0], marks[0])
            return made
        if whole and (slices := picked(func, args)):
            dim, numbers = slices
            made = args[0].index_select(dim, torch.empty(len(numbers), dtype=torch.long, device="meta"))
            self._marked.pick(made, args[0], dim, numbers, marks[0])
            return made
        return self._computed(func, args, kwargs, marks)

    def _found(self, tensor: torch.Tensor, func: Any) -> Mark | None:
        """The mark of a tensor, also of one that is part of a parameter."""
        owner = self._owners.of(tensor)
        if owner is None:
            return self.mark_of(tensor)
        whole = view(self._targets[owner])
        return read_of(self.recording, owner, whole, view(tensor), func.name())

    def _unmarked(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """An op that no published tensor has to do with runs as ever."""
        if str(kwargs.get("device")) == "meta" and all(t.device.type != "meta" for t in tensors_in(args)):
            # Numbers of experts, say, which the loader wants beside a published tensor, keep elements.
            kwargs = {key: value for key, value in kwargs.items() if key != "device"}
        made = func(*args, **kwargs)
        self._marked.changed(changed(func, args, kwargs))
        if func in UNIFORM or (func in SAME and self._marked.constant(args[0]) is not None):
            self._marked.uniform(made)
        return made

    def _written(self, parameters: list[str], func: Any, args: Args) -> None:
        if func not in COPIES | FILLS:
            self.recording.changes += [(parameter, func.name()) for parameter in parameters]
            return
        [parameter], place, of = parameters, args[0], args[1] if len(args) > 1 else 0
        if not isinstance(of, torch.Tensor):
            self._filled(parameter, place, of)
            return
        mark, value = self._found(of, func), self._marked.constant(of)
        if mark is None and func in FILLS:
            self._filled(parameter, place, of.item())
        elif mark is None and value is not None:
            self._filled(parameter, place, value)
        elif mark is None or func in FILLS:
            mark = mark and computed([mark], func.name())
            self.recording.writes.append(Write(parameter, view(place), mark, None, place.dtype))
        else:
            for found, source, target in self._marked.sources(of, mark, view(place)):
                self.recording.writes.append(Write(parameter, target, found, source, place.dtype))

    def _filled(self, parameter: str, place: torch.Tensor, value: Any) -> None:
        after = len(self.recording.writes)
        self.recording.fills.append(Fill(parameter, view(place), value, after))

    def _computed(self, func: Any, args: Args, kwargs: Kwargs, marks: list[Mark]) -> Any:
        """What an op makes of marked tensors, by shape and type alone where they have no elements."""
        mark, written = computed(marks, func.name()), changed(func, args, kwargs)
        for tensor in written:
            self._marked.put(tensor, mark)
        if all(tensor.device.type != "meta" for tensor in tensors_in((args, kwargs))):
            # Of parameters, which are as they were: state beside them is derived from that anew.
            made = func(*args, **kwargs)
        elif func in COPIES:
            return args[0]
        else:
            made = func(*on_meta(args), **on_meta(kwargs))
        for tensor in tensors_in(made):
            if self.mark_of(tensor) is None:
                self._marked.put(tensor, mark)
        if func is _aten.cat.default:
            self._marked.join(made, args[0], args[1] if len(args) > 1 else 0)
        return written[0] if written else made
