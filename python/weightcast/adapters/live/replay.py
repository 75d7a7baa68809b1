"""Parameters that the loader fills itself, and the proof that it can do so again after an update."""

from collections.abc import Mapping

import torch

from ... import _core
from ..catalog import Entry
from ..recording.marks import Fill, Recording, Write
from ..recording.record import record
from ..recording.recorder import Refused
from .reading import Reading

#: What a loader did to parameters.
Steps = Mapping[str, list[Write | Fill]]


def with_all_they_touch(steps: Steps, parameters: set[str]) -> tuple[set[str], set[str]]:
    """All parameters and tensors that go with `parameters` through the loader: a tensor that it gets
    again, it puts wherever that goes."""
    while True:
        tensors = {t for name in parameters for t in _tensors(steps[name])}
        touched = {name for name, listed in steps.items() if tensors & _tensors(listed)}
        if touched <= parameters:
            return parameters, tensors
        parameters = parameters | touched


def check_replay(
    reading: Reading, targets: Mapping[str, torch.Tensor], steps: Steps, catalog: Mapping[str, Entry]
) -> None:
    """Fails unless the loader does with the tensors that arrive whole, and with no others, what it
    does with them among all others, and leaves all other parameters alone."""
    known = {name: reading.known[name] for name in reading.whole}
    try:
        again = record(targets, reading.load, catalog, known)
    except Refused as refused:
        raise _core.Misuse(
            f"{refused} when it gets only {_some(known)}, as after an update; its layout cannot be "
            "read off this loader"
        ) from None
    _compare(again, steps, set(reading.whole))


def _compare(again: Recording, steps: Steps, tensors: set[str]) -> None:
    repeated = again.steps()
    expected = {name: listed for name, listed in steps.items() if tensors & _tensors(listed)}
    differing = sorted(
        {name for name in (*repeated, *expected) if repeated.get(name) != expected.get(name)}
        | {name for name, _ in again.changes}
        | set(again.stale) & set(repeated)
    )
    if differing:
        raise _core.Misuse(
            f"{differing[0]}: its loader does not fill it as it did when it gets only "
            f"{_some(tensors)}, as after an update; its layout cannot be read off it"
        )


def _tensors(steps: list[Write | Fill]) -> set[str]:
    marks = [step.mark for step in steps if isinstance(step, Write) and step.mark is not None]
    return {tensor for mark in marks for tensor in mark.tensors}


def _some(names: set[str] | Mapping[str, str]) -> str:
    first, *others = sorted(names)
    return first + (f" and {len(others)} others" if others else "")
