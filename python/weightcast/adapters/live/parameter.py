"""What fills one parameter, from what its loader wrote into it."""

from dataclasses import replace
from typing import Any

import torch

from ... import _core
from ..boxes.cover import covered, volume
from ..boxes.pieces import ParameterPiece, Unlike, buffers
from ..boxes.strides import Box, BoxCopy, NotBoxes, boxes
from ..recording.recorder import DTYPES, Fill, Recording, Write, view
from .reading import Conversion, Reading, Record
from .staging import Staged

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read_parameter(
    reading: Reading, name: str, target: torch.Tensor, writes: list[Write], recording: Recording
) -> int:
    """Adds a parameter's record to `reading`; returns how many of its elements the loader writes."""
    entries: list[tuple[ParameterPiece, BoxCopy, Write]] = []
    again: list[Write] = []
    for write in writes:
        try:
            entries += _pieces(name, target, write)
        except NotBoxes as rearranged:
            assert write.mark is not None  # else there are no pieces to be in no boxes
            again.append(write)
            reading.rearrange(name, write.mark, str(rearranged))
    entries = _last(name, entries)
    made = Record(name, tuple(target.shape), _NAMES[target.dtype], [p for p, _, _ in entries])
    conversions = [
        Conversion(name, piece.tensor, how)
        for piece, copy, write in entries
        if (how := _how(copy, write)) is not None
    ]
    if conversions:
        reading.conversions += conversions
        reading.staged[name] = [
            Staged(piece, target, (*_path(write), write.dtype), copy.axes)
            for piece, copy, write in entries
        ]
    else:
        _check_form(name, target, made)
    reading.records.append(made)
    fills = [fill for fill in recording.fills if fill.parameter == name]
    _pad(reading, made, target, fills, recording.writes)
    return _filled(made, target, [*fills, *again])


def _check_form(name: str, target: torch.Tensor, made: Record) -> None:
    if not target.is_contiguous():
        raise _core.Misuse(
            f"{name}: not contiguous (shape {tuple(target.shape)}, strides {target.stride()}); the "
            "engine has rearranged it after loading: read the layout before it does"
        )
    try:
        buffers(made.shape, made.pieces)
    except Unlike as unlike:
        raise _core.Misuse(f"{name}: {unlike}") from None


def _pieces(name: str, target: torch.Tensor, write: Write) -> list[tuple[ParameterPiece, BoxCopy, Write]]:
    """Raises `NotBoxes` if the loader repeats elements, or takes them in no order of boxes."""
    mark, source = write.mark, write.source
    if 0 in write.target.shape:
        return []
    if mark is None or source is None:
        raise _core.Misuse(
            f"{name}: its loader writes something that no published tensor went into as it is; "
            "its layout cannot be read off it"
        )
    if mark.op is not None:
        raise _core.Misuse(
            f"{name}: its loader computes it from {mark.tensor} ({mark.op}); publish what it "
            "computes, or leave it to the engine's own loader"
        )
    if mark.rearranged is not None:
        raise NotBoxes(mark.rearranged)
    copies = boxes(source, mark.base, write.target, view(target))
    return [
        (ParameterPiece(mark.tensor, mark.base.shape, copy.source, copy.target), copy, write)
        for copy in copies
    ]


def _last(
    name: str, entries: list[tuple[ParameterPiece, BoxCopy, Write]]
) -> list[tuple[ParameterPiece, BoxCopy, Write]]:
    """Without what is written again. Two tensors in one box are tied: both are kept."""
    kept: dict[tuple[Any, ...], tuple[ParameterPiece, BoxCopy, Write]] = {}
    for piece, copy, write in entries:
        at = (piece.target.start, piece.target.len)
        before = kept.get(at)
        if before is not None and before[0].tensor != piece.tensor:
            # In the order of their names, whichever came first.
            tied = sorted(
                [replace(before[0], also=()), *before[0].also, piece], key=lambda p: p.tensor
            )
            kept[at] = (replace(tied[0], also=tuple(tied[1:])), copy, write)
        else:
            kept[at] = (piece, copy, write)
    return sorted(kept.values(), key=lambda entry: entry[0].target.start)


def _how(copy: BoxCopy, write: Write) -> str | None:
    path = _path(write)
    if path[0] != write.dtype or len(path) > 1:
        return f"cast {' to '.join(_NAMES[d] for d in (*path, write.dtype))}"
    return None if copy.ordered else "transpose"


def _path(write: Write) -> tuple[torch.dtype, ...]:
    """The types that a piece has before it is written, without repeats."""
    assert write.mark is not None
    listed = list(write.mark.dtypes)
    while len(listed) > 1 and listed[-1] == write.dtype:
        listed.pop()
    return tuple(d for i, d in enumerate(listed) if i == 0 or d != listed[i - 1])


def _pad(
    reading: Reading,
    record: Record,
    target: torch.Tensor,
    fills: list[Fill],
    writes: list[Write],
) -> None:
    """Keeps what the loader fills with a constant, where no tensor goes."""
    pieces = [piece.target for piece in record.pieces]
    for fill in fills:
        if 0 in fill.target.shape:
            continue
        filled = _boxes_of(fill, target)
        if covered([*pieces, *filled], target.ndim) < volume(pieces) + volume(filled):
            if any(write.parameter == record.name for write in writes[: fill.after]):
                raise _core.Misuse(f"{record.name}: its loader fills it again after a copy")
            continue
        place = target.detach().as_strided(
            fill.target.shape, fill.target.strides, fill.target.offset
        )
        reading.fills.append((place, fill.value))


def _filled(record: Record, target: torch.Tensor, fills: list[Fill | Write]) -> int:
    """Elements that the loader writes. Pieces that overlap are an error."""
    pieces = [piece.target for piece in record.pieces]
    if covered(pieces, target.ndim) < volume(pieces):
        raise _core.Misuse(f"{record.name}: its loader copies several tensors to one place")
    padding = [box for fill in fills for box in _boxes_of(fill, target)]
    return covered([*pieces, *padding], target.ndim)


def _boxes_of(fill: Fill | Write, target: torch.Tensor) -> list[Box]:
    if 0 in fill.target.shape:
        return []
    whole = view(target)
    try:
        return [copy.target for copy in boxes(fill.target, whole, fill.target, whole)]
    except NotBoxes as wrong:
        raise _core.Misuse(f"{fill.parameter}: the place that its loader fills {wrong}") from None
