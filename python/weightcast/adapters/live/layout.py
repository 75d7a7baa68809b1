"""The layout of a live engine's parameters, as its own loader fills them."""

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ... import _core
from ... import layout as layouts
from ..boxes.pieces import Buffer, ParameterPiece, buffers
from .beside import Beside
from .reading import Reading, Record


class LiveLayout:
    """What a live model's parameters hold, and which decisions were made about the rest.

    `layout()` goes to `Handle.register`; `finish()` follows every `update` or `replicate` that
    changed something. Made by an adapter's `read`.
    """

    #: Whether bytes land beside the parameters whatever `layout` is asked for.
    always_beside = False

    def __init__(
        self,
        reading: Reading,
        *,
        model: nn.Module | None = None,
        derived: Mapping[str, str] | None = None,
        redo: Callable[[], None] | None = None,
        stale: Callable[[], bool] = lambda: False,
    ) -> None:
        """A `model` whose parameters have the names of `reading` is watched: layouts notice if it
        replaces them. `redo` has the engine make anew what it has `derived` from its parameters. `stale`
        says whether the engine has put something else into its parameters since."""
        self._reading = reading
        self._model: Callable[[], nn.Module | None] = lambda: None
        if model is not None:
            self._model = weakref.ref(model)
        self._redo, self._stale = redo, stale
        #: Memory of published tensors that the loader gets whole.
        self._arrived: dict[str, torch.Tensor] = {}
        #: Memory of published tensors that are not used.
        self._left: dict[str, torch.Tensor] = {}
        #: Memory beside the parameters, if bytes land there.
        self._beside = Beside()
        #: Places that hold the same as another one, and that one: a second copy of an expert.
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        #: One for each parameter that something published fills, in the order of the model.
        self.records = reading.records
        #: Parameters that need more than a copy of bytes.
        self.conversions = reading.conversions
        #: Published tensors that the loader gets whole.
        self.whole = reading.whole
        #: Parameters that nothing published fills, with the reason why that is right.
        self.unsourced = reading.unsourced
        #: Published tensors that this engine does not use, with the reason.
        self.unused = reading.unused
        #: Published tensors whose loader keeps nothing of them on this rank (experts of other
        #: ranks, say), with the parameter whose loader saw them.
        self.elsewhere = reading.elsewhere
        #: State that the engine derives from its parameters, with who derives it.
        self.derived = dict(derived or {})

    def leave(self, names: Collection[str]) -> list[Record]:
        """Leaves out parameters that another layout of the engine has; says what would have filled them."""
        left = [record for record in self.records if record.name in names]
        self.records[:] = [record for record in self.records if record.name not in names]
        self.conversions[:] = [each for each in self.conversions if each.parameter not in names]
        return left

    def layout(
        self, *, stage: bool = False, beside: bool = False, into: layouts.Layout | None = None
    ) -> layouts.Layout:
        """The layout, for `Handle.register`; added to `into`, if that is given.

        Parameters in `conversions` cannot be written by copying bytes. Without `stage` they raise
        `Misuse`, which lists them. With it, tensors of the published type are registered in their
        place, and `finish()` converts them into the parameter, as the engine's loader does.

        With `beside`, no parameter is registered, but host memory of the same size, and `finish()`
        copies what has arrived there into the parameters: the engine may use them until then.

        Padding that the loader zeroes (of a vocabulary, say) is zeroed here, once and for all.
        """
        if self.conversions and not stage:
            conversions = "\n".join(f"  {c}" for c in self.conversions)
            raise _core.Misuse(
                f"{len(self.conversions)} copies are not of bytes:\n{conversions}\n"
                "register read(...).layout(stage=True), and call finish() after each update"
            )
        with torch.no_grad():
            for place, value in self._reading.fills:
                place.fill_(value)
        listed = layouts.Layout() if into is None else into
        places: dict[Any, torch.Tensor] = {}
        self._copies = []
        for record in self.records:
            staged = self._reading.staged.get(record.name)
            if staged is None:
                parameter = self._reading.parameters[record.name]
                for buffer in buffers(record.shape, record.pieces):
                    place = place_of(parameter, buffer)
                    first = places.setdefault(buffer.content(), place)
                    if first is place:
                        of_copies = self._beside if beside else None
                        add_buffer(listed, parameter, buffer, of_copies, record.name)
                    else:
                        self._copies.append((place, first))
            else:
                for each in staged:
                    listed.add(each.allocate(on_host=beside), [part_of(each.piece)])
        for name, piece in self.whole.items():
            if name not in self._arrived:
                self._arrived[name] = torch.empty(piece.shape, dtype=self._reading.dtypes[name])
            listed.add(self._arrived[name], [part_of(piece)])
        self._lay_left(listed)
        listed.apart = beside
        self._note(listed)
        return listed

    def described(self) -> layouts.Layout:
        """The layout without memory, to be described and planned: what `layout(stage=True)` would register.
        The model may lie on the `meta` device; nothing of it changes."""
        listed = layouts.Layout(memory=False)

        def meta(form: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(tuple(form), dtype=dtype, device="meta")

        known: set[Any] = set()
        for record in self.records:
            staged = self._reading.staged.get(record.name)
            for each in staged or ():
                memory = meta(each.piece.source.len, each.dtypes[0])
                listed.add(memory, [part_of(each.piece)], name=record.name)
            for buffer in buffers(record.shape, record.pieces) if staged is None else ():
                if buffer.content() not in known:
                    known.add(buffer.content())
                    parameter = self._reading.parameters[record.name]
                    add_buffer(listed, parameter, buffer, name=record.name)
        whole = [(piece, self._reading.dtypes[name]) for name, piece in self.whole.items()]
        for piece, dtype in [*whole, *self._reading.left.values()]:
            listed.add(meta(piece.shape, dtype), [part_of(piece)], name=piece.tensor)
        return listed

    @property
    def left(self) -> dict[str, torch.Tensor]:
        """What has arrived and is not used here, by published name."""
        return dict(self._left)

    def _lay_left(self, listed: layouts.Layout) -> None:
        """A replica holds a version whole, with what this engine does not use."""
        for name, (piece, dtype) in self._reading.left.items():
            if name not in self._left:
                self._left[name] = torch.empty(piece.shape, dtype=dtype)
            listed.add(self._left[name], [part_of(piece)])

    def _note(self, listed: layouts.Layout) -> None:
        model = self._model()
        if model is None:
            return
        listed.origins.module(model)
        for record in self.records:
            path, _, key = record.name.rpartition(".")
            listed.origins.slot(record.name, model.get_submodule(path), key)

    def stale(self) -> bool:
        """Whether the engine's parameters hold other tensors than when they were read: read them again."""
        return self._stale()

    def check(self) -> None:
        """Raises if the parameters have become those of other tensors since they were read."""
        if self.stale():
            raise _core.Misuse(
                "the engine has moved experts between its workers since this update began to be fetched, and "
                "what has arrived would go into other experts; nothing has changed: send the weights again"
            )

    def finish(self) -> None:
        """What has to follow an update: converts what was staged, and has the engine redo the
        state that it derives from its parameters."""
        reading = self._reading
        with torch.no_grad():
            self._beside.install()
            for place, first in self._copies:
                place.copy_(first)
            for listed in reading.staged.values():
                for staged in listed:
                    staged.convert()
            if self._arrived:
                reading.load([(reading.known[name], t) for name, t in self._arrived.items()])
            if self._redo is not None:
                self._redo()


def add_buffer(
    listed: layouts.Layout,
    parameter: torch.Tensor,
    buffer: Buffer,
    beside: Beside | None = None,
    name: str | None = None,
) -> None:
    """Adds a contiguous box of a parameter, called `name` here; the memory is its own, or `beside` it."""
    memory = place_of(parameter, buffer)
    if beside is not None:
        memory = beside.of(memory)
    parts = [part_of(piece) for piece in buffer.pieces]
    listed.add(memory.view(buffer.shape), parts, along=buffer.along, pad=buffer.padded, name=name)
    for again in zip(*(piece.also for piece in buffer.pieces), strict=False):
        listed.also([part_of(piece) for piece in again], along=buffer.along)


def place_of(parameter: torch.Tensor, buffer: Buffer) -> torch.Tensor:
    """A contiguous box of a parameter."""
    memory = parameter.detach()
    for dim, (start, length) in enumerate(zip(buffer.box.start, buffer.box.len, strict=True)):
        memory = memory.narrow(dim, start, length)
    return memory


def part_of(piece: ParameterPiece) -> layouts.Part:
    """The box of a published tensor that a piece is."""
    core = _core.Part(piece.tensor, list(piece.shape))
    for dim, (start, length) in enumerate(zip(piece.source.start, piece.source.len, strict=True)):
        core = core.range(dim, start, length)
    return layouts.Part(core)
