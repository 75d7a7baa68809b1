"""The layout of a live engine's parameters, as its own loader fills them."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .. import _core
from .. import layout as layouts
from .pieces import Buffer, Piece, buffers
from .recorder import Mark
from .staging import Staged
from .strides import Box

#: An engine's loader: names and tensors, as a checkpoint has them.
Load = Callable[[Iterable[tuple[str, torch.Tensor]]], Any]


@dataclass(frozen=True)
class Conversion:
    """A parameter whose bytes are not those of a published tensor: the engine's loader casts,
    transposes, repeats or rearranges elements on the way. They arrive in a staged tensor;
    `LiveLayout.finish` converts, or hands it to the loader."""

    parameter: str
    tensor: str
    #: `cast BF16 to F32`, `transpose`, or what the loader does.
    how: str

    def __str__(self) -> str:
        return f"{self.parameter}: {self.how} of {self.tensor}"


@dataclass
class Record:
    """What one parameter holds."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    pieces: list[Piece] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As the layout data set writes it."""
        pieces = [piece.as_record() for piece in self.pieces]
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "pieces": pieces}


class LiveLayout:
    """What a live model's parameters hold, and which decisions were made about the rest.

    `layout()` goes to `Handle.register`; `finish()` follows every `update` or `replicate` that
    changed something. Made by an adapter's `read`.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = dict(parameters)
        self._model: Callable[[], nn.Module | None] = lambda: None
        self._staged: dict[str, list[Staged]] = {}
        self._after: list[Callable[[], None]] = []
        #: Published tensors that the loader gets whole, with their memory once there is one.
        self.whole: dict[str, Piece] = {}
        self._arrived: dict[str, torch.Tensor] = {}
        #: The engine's loader, its names, and the published types.
        self._load: Load | None = None
        self._known: Mapping[str, str] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        #: Places that the loader fills with a constant: padding.
        self._fills: list[tuple[torch.Tensor, Any]] = []
        #: One for each parameter that something published fills, in the order of the model.
        self.records: list[Record] = []
        #: Parameters that need more than a copy of bytes.
        self.conversions: list[Conversion] = []
        #: Parameters that nothing published fills, with the reason why that is right.
        self.unsourced: dict[str, str] = {}
        #: Published tensors that this engine does not use, with the reason.
        self.unused: dict[str, str] = {}
        #: Published tensors whose loader keeps nothing of them on this rank (experts of other
        #: ranks, say), with the parameter whose loader saw them.
        self.elsewhere: dict[str, str] = {}
        #: State that the engine derives from its parameters, with who derives it.
        self.derived: dict[str, str] = {}

    def belongs_to(self, model: nn.Module) -> None:
        """The parameters are this model's, by these names: layouts notice if it replaces them."""
        self._model = weakref.ref(model)

    def rearrange(self, parameter: str, mark: Mark, how: str) -> None:
        """Notes that the loader does with a published tensor what no copies of boxes do: it gets the
        tensor as it is, whenever it has arrived."""
        whole = Box((0,) * len(mark.base.shape), mark.base.shape)
        self.whole[mark.tensor] = Piece(mark.tensor, mark.base.shape, whole, whole)
        self._dtypes[mark.tensor] = mark.dtypes[0]
        self.conversions.append(Conversion(parameter, mark.tensor, f"a copy, which {how},"))

    def layout(self, *, stage: bool = False) -> layouts.Layout:
        """The layout, for `Handle.register`.

        Parameters in `conversions` cannot be written by copying bytes. Without `stage` they raise
        `Misuse`, which lists them. With it, tensors of the published type are registered in their
        place, and `finish()` converts them into the parameter, as the engine's loader does.

        Padding that the loader zeroes (of a vocabulary, say) is zeroed here, once and for all.
        """
        if self.conversions and not stage:
            conversions = "\n".join(f"  {c}" for c in self.conversions)
            raise _core.Misuse(
                f"{len(self.conversions)} copies are not of bytes:\n{conversions}\n"
                "register read(...).layout(stage=True), and call finish() after each update"
            )
        with torch.no_grad():
            for place, value in self._fills:
                place.fill_(value)
        listed = layouts.Layout()
        for record in self.records:
            staged = self._staged.get(record.name)
            if staged is None:
                parameter = self._parameters[record.name]
                for buffer in buffers(record.shape, record.pieces):
                    add_buffer(listed, parameter, buffer)
            else:
                for each in staged:
                    listed.add(each.allocate(), [part_of(each.piece)])
        for name, piece in self.whole.items():
            if name not in self._arrived:
                self._arrived[name] = torch.empty(piece.shape, dtype=self._dtypes[name])
            listed.add(self._arrived[name], [part_of(piece)])
        self._note(listed)
        return listed

    def _note(self, listed: layouts.Layout) -> None:
        model = self._model()
        if model is None:
            return
        listed.origins.module(model)
        for record in self.records:
            path, _, key = record.name.rpartition(".")
            listed.origins.slot(record.name, model.get_submodule(path), key)

    def finish(self) -> None:
        """What has to follow an update: converts what was staged, and has the engine redo the
        state that it derives from its parameters."""
        with torch.no_grad():
            for listed in self._staged.values():
                for staged in listed:
                    staged.convert()
            if self._arrived and self._load is not None:
                self._load([(self._known[name], t) for name, t in self._arrived.items()])
            for redo in self._after:
                redo()


def add_buffer(listed: layouts.Layout, parameter: torch.Tensor, buffer: Buffer) -> None:
    """Adds a contiguous box of a parameter; the memory is the parameter's own."""
    memory = parameter.detach()
    for dim, (start, length) in enumerate(zip(buffer.box.start, buffer.box.len, strict=True)):
        memory = memory.narrow(dim, start, length)
    parts = [part_of(piece) for piece in buffer.pieces]
    listed.add(memory.view(buffer.shape), parts, along=buffer.along, pad=buffer.padded)
    for again in zip(*(piece.also for piece in buffer.pieces), strict=False):
        listed.also([part_of(piece) for piece in again], along=buffer.along)


def part_of(piece: Piece) -> layouts.Part:
    """The box of a published tensor that a piece is."""
    core = _core.Part(piece.tensor, list(piece.shape))
    for dim, (start, length) in enumerate(zip(piece.source.start, piece.source.len, strict=True)):
        core = core.range(dim, start, length)
    return layouts.Part(core)
