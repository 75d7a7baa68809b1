"""What is noted of a loader: where published tensors went, and what else became of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..boxes.strides import View


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
    #: Further published tensors that it was computed from.
    others: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """All published tensors that it was made of."""
        return (self.tensor, *self.others)


def computed(marks: Sequence[Mark], op: str) -> Mark:
    """The mark of what an op makes of marked tensors."""
    first, names = marks[0], dict.fromkeys(name for mark in marks for name in mark.tensors)
    others = tuple(name for name in names if name != first.tensor)
    return replace(first, op=first.op or op, others=others)


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
    #: Parameters that it read before it had filled what it read, with the op.
    stale: dict[str, str] = field(default_factory=dict)
    #: Published tensors that reached a parameter's loader, with the parameter.
    reached: dict[str, str] = field(default_factory=dict)

    def steps(self) -> dict[str, list[Write | Fill]]:
        """What was done to the elements of each parameter, in the order in which it was done."""
        steps: dict[str, list[Write | Fill]] = {}
        fills = iter([*self.fills, None])
        fill = next(fills)
        for number, write in enumerate([*self.writes, None]):
            while fill is not None and fill.after <= number:
                steps.setdefault(fill.parameter, []).append(replace(fill, after=0))
                fill = next(fills)
            if write is not None:
                steps.setdefault(write.parameter, []).append(write)
        return {name: listed for name, every in steps.items() if (listed := _not_empty(every))}


def _not_empty(steps: list[Write | Fill]) -> list[Write | Fill]:
    return [step for step in steps if 0 not in step.target.shape]
