"""What is found out about a model's parameters before there is a layout of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..boxes.pieces import ParameterPiece
from ..boxes.strides import Box
from ..catalog import Entry
from ..recording.recorder import DTYPES
from .staging import Staged

#: Why a tensor is not used here, if another model of the engine has it.
OTHERS = "another model of this engine takes it"

#: An engine's loader: names and tensors, as a checkpoint has them.
Load = Callable[[Iterable[tuple[str, torch.Tensor]]], Any]


@dataclass(frozen=True)
class Conversion:
    """A parameter whose bytes are not those of a published tensor: the engine's loader casts,
    transposes, repeats or rearranges elements on the way, or computes with them. They arrive in a staged
    tensor; `LiveLayout.finish` converts, or hands it to the loader."""

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
    pieces: list[ParameterPiece] = field(default_factory=list)
    #: A buffer has a value of the engine's own where nothing is published.
    buffer: bool = False

    def as_json(self) -> dict[str, Any]:
        """As the layout data set writes it."""
        pieces = [piece.as_record() for piece in self.pieces]
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "pieces": pieces}


@dataclass
class Reading:
    """Collects, parameter by parameter, what a `LiveLayout` is made of."""

    #: Parameters, and buffers that the loader may write to.
    parameters: dict[str, torch.Tensor]
    #: The engine's loader.
    load: Load
    #: The loader's names of published tensors.
    known: dict[str, str]
    #: One for each parameter that something published fills, in the order of the model.
    records: list[Record] = field(default_factory=list)
    #: Parameters that need more than a copy of bytes.
    conversions: list[Conversion] = field(default_factory=list)
    #: By parameter: tensors in which published bytes arrive that are converted into it.
    staged: dict[str, list[Staged]] = field(default_factory=dict)
    #: Published tensors that the loader gets whole, in the order of the catalog, and their types.
    whole: dict[str, ParameterPiece] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    #: Places that the loader fills with a constant: padding.
    fills: list[tuple[torch.Tensor, Any]] = field(default_factory=list)
    #: Parameters that nothing published fills, with the reason why that is right.
    unsourced: dict[str, str] = field(default_factory=dict)
    #: Published tensors that this engine does not use, with the reason; and memory's form for those of them
    #: that arrive all the same, since a replica holds a version whole.
    unused: dict[str, str] = field(default_factory=dict)
    left: dict[str, tuple[ParameterPiece, torch.dtype]] = field(default_factory=dict)
    #: Published tensors whose loader keeps nothing of them on this rank (experts of other
    #: ranks, say), with the parameter whose loader saw them.
    elsewhere: dict[str, str] = field(default_factory=dict)

    def take_whole(self, tensor: str, entry: Entry) -> None:
        """Notes that a published tensor arrives as it is, for the loader."""
        self.whole[tensor] = _whole(tensor, entry)
        self.dtypes[tensor] = DTYPES[entry.dtype]

    def leave(self, tensor: str, entry: Entry, reason: str) -> None:
        """Notes that a published tensor is not used."""
        self.unused[tensor] = reason
        if reason != OTHERS and entry.dtype in DTYPES:
            self.left[tensor] = (_whole(tensor, entry), DTYPES[entry.dtype])


def _whole(tensor: str, entry: Entry) -> ParameterPiece:
    box = Box((0,) * len(entry.shape), entry.shape)
    return ParameterPiece(tensor, entry.shape, box, box)
