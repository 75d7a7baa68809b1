"""What fills one parameter, from what its loader wrote into it."""

from dataclasses import replace
from typing import Any

import torch

from ... import _core
from ..boxes.cover import covered, volume, without
from ..boxes.pieces import ParameterPiece, Unlike, buffers
from ..boxes.strides import Box, BoxCopy, NotBoxes, boxes
from ..recording.marks import Fill, Recording, Write
from ..recording.owners import view
from ..recording.recorder import DTYPES
from .reading import Conversion, Reading, Record
from .staging import Staged

_NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: A piece, the copy of boxes that brings it, and the write that the copy is part of.
Traced = tuple[ParameterPiece, BoxCopy, Write]


def pieces_of(name: str, target: torch.Tensor, writes: list[Write]) -> list[Traced]:
    """The pieces that a parameter is made of. Raises `NotBoxes` if its loader does more with
    published tensors than copy boxes of them."""
    return _last([entry for write in writes for entry in _pieces(name, target, write)])


def read_parameter(
    reading: Reading, name: str, target: torch.Tensor, entries: list[Traced], recording: Recording
) -> int:
    """Adds a parameter's record to `reading`; returns how many of its elements are filled."""
    made = _record(name, target, [p for p, _, _ in entries])
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
    return _filled(made, target, fills)


def read_through_loader(
    reading: Reading, name: str, target: torch.Tensor, steps: list[Write | Fill], how: str
) -> int:
    """The same for a parameter that the loader fills itself, from tensors that arrive whole."""
    marks = [step.mark for step in steps if isinstance(step, Write) and step.mark is not None]
    tensors = dict.fromkeys(tensor for mark in marks for tensor in mark.tensors)
    reading.conversions += [Conversion(name, t, f"a copy, which {how},") for t in tensors]
    reading.records.append(_record(name, target, []))
    return covered([box for step in steps for box in _boxes_of(step, target)], target.ndim)


def _record(name: str, target: torch.Tensor, pieces: list[ParameterPiece]) -> Record:
    if target.dtype not in _NAMES:
        raise _core.Misuse(f"{name}: {target.dtype} is no type that can be published")
    return Record(name, tuple(target.shape), _NAMES[target.dtype], pieces)


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


def _pieces(name: str, target: torch.Tensor, write: Write) -> list[Traced]:
    mark, source = write.mark, write.source
    if 0 in write.target.shape:
        return []
    if mark is None:
        raise _core.Misuse(
            f"{name}: its loader writes something that no published tensor went into; its layout "
            "cannot be read off it"
        )
    if mark.op is not None or source is None:
        raise NotBoxes(f"computes other values ({mark.op})")
    if mark.rearranged is not None:
        raise NotBoxes(mark.rearranged)
    copies = boxes(source, mark.base, write.target, view(target))
    return [
        (ParameterPiece(mark.tensor, mark.base.shape, copy.source, copy.target), copy, write)
        for copy in copies
    ]


def _last(entries: list[Traced]) -> list[Traced]:
    """Without what is written again. Two tensors in one box are tied: both are kept."""
    kept: dict[tuple[Any, ...], Traced] = {}
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
        return f"cast {' to '.join(_NAMES.get(d, str(d)) for d in (*path, write.dtype))}"
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
    """Keeps what the loader fills with a constant, where no tensor goes: also where it fills all at first."""
    pieces = [piece.target for piece in record.pieces]
    for fill in fills:
        if 0 in fill.target.shape:
            continue
        filled = _boxes_of(fill, target)
        if covered([*pieces, *filled], target.ndim) < volume(pieces) + volume(filled):
            if any(write.parameter == record.name for write in writes[: fill.after]):
                raise _core.Misuse(f"{record.name}: its loader fills it again after a copy")
        for box in filled:
            reading.fills += [(_at(target, left), fill.value) for left in without(box, pieces)]


def _at(target: torch.Tensor, box: Box) -> torch.Tensor:
    place = target.detach()
    for dim, (start, length) in enumerate(zip(box.start, box.len, strict=True)):
        place = place.narrow(dim, start, length)
    return place


def _filled(record: Record, target: torch.Tensor, fills: list[Fill]) -> int:
    """Elements that are filled. Pieces that overlap are an error."""
    pieces = [piece.target for piece in record.pieces]
    if covered(pieces, target.ndim) < volume(pieces):
        raise _core.Misuse(f"{record.name}: its loader copies several tensors to one place")
    padding = [box for fill in fills for box in _boxes_of(fill, target)]
    return covered([*pieces, *padding], target.ndim)


def _boxes_of(step: Fill | Write, target: torch.Tensor) -> list[Box]:
    if 0 in step.target.shape:
        return []
    whole = view(target)
    try:
        return [copy.target for copy in boxes(step.target, whole, step.target, whole)]
    except NotBoxes as wrong:
        raise _core.Misuse(f"{step.parameter}: the place that its loader fills {wrong}") from None
