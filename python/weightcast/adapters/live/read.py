"""Reads the layout of a live model off what its own loader does."""

import fnmatch
import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ... import _core
from ..catalog import Entry
from ..naming.nearest import unmatched
from ..naming.rename import Rename, known_names
from ..recording.owners import Owners
from ..recording.record import record
from ..recording.recorder import Recording, Refused, Write
from .layout import LiveLayout
from .parameter import read_parameter
from .reading import Load, Reading

log = logging.getLogger("weightcast")

#: Why a name may be left over, by pattern (`fnmatch`).
Reasons = Mapping[str, str]


def examine(
    parameters: Mapping[str, torch.Tensor],
    load: Load,
    catalog: Mapping[str, Entry],
    *,
    memory: Mapping[str, torch.Tensor] | None = None,
    unused: Reasons,
    unsourced: Reasons,
    rename: Rename | None = None,
) -> Reading:
    """What `parameters` hold as `load` fills them from the published tensors of `catalog`.

    `memory` are further tensors that `load` must not change (buffers), which are laid out if it
    writes to them. Names left over on either side must match a pattern of `unused` (published ones)
    or `unsourced` (parameters); the others raise `LayoutMismatch`. `rename` maps published names to
    those that `load` knows, or to None. Nothing is loaded.
    """
    targets = {**(memory or {}), **parameters}
    known = known_names(catalog, rename)
    try:
        recording = record(targets, load, catalog, known)
    except Refused as refused:
        raise _core.Misuse(f"{refused}; its layout cannot be read off this loader") from None
    reading = Reading(targets, load, known)
    _refuse_changes(recording)
    by_parameter: dict[str, list[Write]] = {}
    for write in recording.writes:
        by_parameter.setdefault(write.parameter, []).append(write)
    left = []
    owners = Owners(targets)
    for name, target in targets.items():
        filled, owner = 0, owners.of(target)
        if owner not in (None, name):
            reading.unsourced[name] = f"a view of {owner}"
            continue
        if name in by_parameter:
            filled = read_parameter(reading, name, target, by_parameter[name], recording)
        elif name not in parameters:
            continue
        if filled < target.numel() and not _decided(reading, name, unsourced):
            left.append(f"{name} ({filled} of {target.numel()} elements are filled)")
    if left:
        what, advice = "parameters that nothing published fills", (
            "publish them under the names that the engine's loader knows, or pass unsourced="
        )
        raise _core.LayoutMismatch(unmatched(what, left, catalog, advice))
    _leave_unused(reading, recording, catalog, known, unused)
    return reading


def read(
    parameters: Mapping[str, torch.Tensor],
    load: Load,
    catalog: Mapping[str, Entry],
    *,
    redo: Callable[[], None] | None = None,
    **decisions: Any,
) -> LiveLayout:
    """The layout of `parameters`, for an engine without an adapter of its own: `redo` makes anew what
    the engine derives from them. The other arguments are those of `examine`."""
    return LiveLayout(examine(parameters, load, catalog, **decisions), redo=redo)


def _refuse_changes(recording: Recording) -> None:
    if recording.changes:
        listed = "\n".join(f"  {name}: {op}" for name, op in recording.changes[:8])
        raise _core.Misuse(
            f"the loader changes parameters otherwise than by copies:\n{listed}\n"
            "their layout cannot be read off it"
        )


def _decided(reading: Reading, name: str, unsourced: Reasons) -> bool:
    reason = _reason(name, unsourced)
    if reason is not None:
        reading.unsourced[name] = reason
    return reason is not None


def _leave_unused(
    reading: Reading,
    recording: Recording,
    catalog: Mapping[str, Entry],
    known: Mapping[str, str],
    allowed: Reasons,
) -> None:
    taken = {w.mark.tensor for w in recording.writes if w.mark is not None}
    left: list[str] = []
    decided: dict[str, list[str]] = {}
    for name in catalog:
        if name in taken:
            continue
        reason = _reason(name, allowed)
        if reason is None and name in known:
            reason = _reason(known[name], allowed)
        elif reason is None:
            reason = "left out by rename"
        if reason is not None:
            reading.unused[name] = reason
            decided.setdefault(reason, []).append(name)
        elif name in recording.reached:
            reading.elsewhere[name] = recording.reached[name]
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
