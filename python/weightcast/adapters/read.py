"""Reads the layout of a live model off what its own loader does."""

import fnmatch
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .. import _core
from ..memory import TORCH
from .catalog import Entry
from .live import Conversion, LiveLayout, Record
from .nearest import unmatched
from .pieces import Piece, Unlike, buffers
from .recorder import DTYPES, Recording, Refused, Write, record, view
from .staging import Staged
from .strides import BoxCopy, NotBoxes, View, boxes

log = logging.getLogger("weightcast")

#: Why a name may be left over, by pattern (`fnmatch`).
Reasons = Mapping[str, str]

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(
    parameters: Mapping[str, torch.Tensor],
    load: Callable[[Iterable[tuple[str, torch.Tensor]]], Any],
    catalog: Mapping[str, Entry],
    *,
    memory: Mapping[str, torch.Tensor] | None = None,
    unused: Reasons,
    unsourced: Reasons,
) -> LiveLayout:
    """The layout of `parameters` as `load` fills them from the published tensors of `catalog`.

    `memory` are further tensors that `load` must not change (buffers), which are laid out if it
    writes to them. Names left over on either side must match a pattern of `unused` (published ones)
    or `unsourced` (parameters); the others raise `LayoutMismatch`. Nothing is loaded.
    """
    targets = {**(memory or {}), **parameters}
    try:
        recording = record(targets, load, catalog)
    except Refused as refused:
        raise _core.Misuse(f"{refused}; its layout cannot be read off this loader") from None
    live = LiveLayout(targets)
    _refuse_changes(recording)
    for name, place, value in recording.fills:
        if 0 not in place.shape:
            filled = targets[name].detach().as_strided(place.shape, place.strides, place.offset)
            live._fills.append((filled, value))
    by_parameter: dict[str, list[Write]] = {}
    for write in recording.writes:
        by_parameter.setdefault(write.parameter, []).append(write)
    for name, target in targets.items():
        if name in by_parameter:
            _read_parameter(live, name, target, by_parameter[name])
    _leave_unsourced(live, parameters, by_parameter, catalog, unsourced)
    _leave_unused(live, recording, catalog, unused)
    return live


def _refuse_changes(recording: Recording) -> None:
    if recording.changes:
        listed = "\n".join(f"  {name}: {op}" for name, op in recording.changes[:8])
        raise _core.Misuse(
            f"the loader changes parameters otherwise than by copies:\n{listed}\n"
            "their layout cannot be read off it"
        )


def _read_parameter(
    live: LiveLayout, name: str, target: torch.Tensor, writes: list[Write]
) -> None:
    entries: list[tuple[Piece, BoxCopy, Write]] = []
    for write in writes:
        entries += _pieces(name, target, write)
    entries = _last(name, entries)
    made = Record(name, tuple(target.shape), _NAMES[target.dtype], [p for p, _, _ in entries])
    conversions = [
        Conversion(name, piece.tensor, how)
        for piece, copy, write in entries
        if (how := _how(copy, write)) is not None
    ]
    if conversions:
        live.conversions += conversions
        live._staged[name] = [
            Staged(piece, target, (*_path(write), write.dtype), copy.axes)
            for piece, copy, write in entries
        ]
    else:
        _check_form(name, target, made)
    live.records.append(made)


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


def _pieces(name: str, target: torch.Tensor, write: Write) -> list[tuple[Piece, BoxCopy, Write]]:
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
    try:
        copies = boxes(source, mark.base, write.target, view(target))
    except NotBoxes as wrong:
        raise _core.Misuse(f"{name}: its loader's copy of {mark.tensor} {wrong}") from None
    return [
        (Piece(mark.tensor, mark.base.shape, copy.source, copy.target), copy, write)
        for copy in copies
    ]


def _last(
    name: str, entries: list[tuple[Piece, BoxCopy, Write]]
) -> list[tuple[Piece, BoxCopy, Write]]:
    """Without what is written again. Two tensors in one box are tied: both are kept."""
    kept: dict[tuple, tuple[Piece, BoxCopy, Write]] = {}
    for piece, copy, write in entries:
        at = (piece.target.start, piece.target.len)
        before = kept.get(at)
        if before is not None and before[0].tensor != piece.tensor:
            tied = Piece(
                before[0].tensor,
                before[0].shape,
                before[0].source,
                before[0].target,
                (*before[0].also, piece),
            )
            kept[at] = (tied, before[1], before[2])
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


def _leave_unsourced(
    live: LiveLayout,
    parameters: Mapping[str, torch.Tensor],
    written: Iterable[str],
    catalog: Mapping[str, Entry],
    allowed: Reasons,
) -> None:
    left = []
    for name in parameters:
        if name in written or not parameters[name].numel():
            continue
        reason = _reason(name, allowed)
        if reason is None:
            left.append(name)
        else:
            live.unsourced[name] = reason
    if left:
        advice = "publish them under the names that the engine's loader knows, or pass unsourced="
        what = "parameters that nothing published fills"
        raise _core.LayoutMismatch(unmatched(what, left, catalog, advice))


def _leave_unused(
    live: LiveLayout, recording: Recording, catalog: Mapping[str, Entry], allowed: Reasons
) -> None:
    taken = {w.mark.tensor for w in recording.writes if w.mark is not None}
    left, decided = [], {}
    for name in catalog:
        if name in taken:
            continue
        reason = _reason(name, allowed)
        if reason is not None:
            live.unused[name] = reason
            decided.setdefault(reason, []).append(name)
        elif name in recording.reached:
            live.elsewhere[name] = recording.reached[name]
        else:
            left.append(name)
    for reason, names in decided.items():
        log.warning("%d published tensors are not used (%s): %s", len(names), reason, names[0])
    if left:
        advice = "rename them as the engine's loader expects, or pass unused={pattern: reason}"
        raise _core.LayoutMismatch(
            unmatched("published tensors that the engine does not take", left, taken, advice)
        )


def _reason(name: str, allowed: Reasons) -> str | None:
    return next((why for at, why in allowed.items() if fnmatch.fnmatchcase(name, at)), None)
