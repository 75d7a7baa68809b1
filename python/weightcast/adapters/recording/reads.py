"""What a loader reads of parameters, while nothing is written into them."""

from ..boxes.cover import covered
from ..boxes.strides import Box, NotBoxes, View, boxes
from .marks import Fill, Mark, Recording, Write, computed


def read_of(recording: Recording, name: str, whole: View, part: View, op: str) -> Mark | None:
    """The mark of what a loader reads of a parameter: computed from the tensors that it wrote there.

    Noted as `stale` in the recording unless all of it was written before: the memory does not hold
    what the loader would find.
    """
    steps: list[Write | Fill] = [*recording.writes, *recording.fills]
    before = [step for step in steps if step.parameter == name]
    marks = [step.mark for step in before if isinstance(step, Write) and step.mark is not None]
    if not marks or not _within(part, [step.target for step in before], whole):
        recording.stale.setdefault(name, op)
    return computed(marks, f"{op} of {name}") if marks else None


def _within(part: View, places: list[View], whole: View) -> bool:
    """Whether all of a part of a tensor lies in at least one of several places in it."""
    try:
        filled = [box for place in places for box in _boxes(place, whole)]
        read = _boxes(part, whole)
    except NotBoxes:
        return False
    return covered([*filled, *read], len(whole.shape)) == covered(filled, len(whole.shape))


def _boxes(part: View, whole: View) -> list[Box]:
    return [copy.target for copy in boxes(part, whole, part, whole)]
