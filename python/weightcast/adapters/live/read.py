"""Reads the layout of a live model off what its own loader does."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ... import _core
from ..boxes.strides import NotBoxes
from ..catalog import Entry
from ..naming.nearest import unmatched
from ..naming.reasons import Reasons, matching
from ..naming.rename import Rename, known_names
from ..recording.marks import Recording, Write
from ..recording.owners import Owners
from ..recording.record import record
from ..recording.recorder import DTYPES, Refused
from .layout import LiveLayout
from .parameter import Traced, pieces_of, read_parameter, read_through_loader
from .reading import OTHERS, Load, Reading
from .replay import Steps, check_replay, with_all_they_touch

log = logging.getLogger("weightcast")



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
    # A parameter owns its memory before a buffer that is a view of it.
    targets = {**parameters, **(memory or {})}
    known = known_names(catalog, rename)
    _refuse_types(catalog, known)
    try:
        recording = record(targets, load, catalog, known)
    except Refused as refused:
        raise _core.Misuse(f"{refused}; its layout cannot be read off this loader") from None
    reading = Reading(targets, load, known)
    steps = recording.steps()
    _refuse_changes(recording, steps)
    pieces, hows = _traced(recording, targets)
    themselves, tensors = with_all_they_touch(steps, set(hows))
    left, owners = [], Owners(targets)
    for name, target in targets.items():
        filled, owner = 0, owners.of(target)
        if owner not in (None, name):
            reading.unsourced[name] = f"a view of {owner}"
            continue
        if name in themselves:
            how = hows.get(name, "goes through the loader with others")
            filled = read_through_loader(reading, name, target, steps[name], how)
        elif name in pieces:
            filled = read_parameter(reading, name, target, pieces[name], recording)
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
    for made in reading.records:
        made.buffer = made.name not in parameters
    for name in catalog:
        if name in tensors:
            reading.take_whole(name, catalog[name])
    if tensors:
        check_replay(reading, targets, steps, catalog)
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


def _refuse_types(catalog: Mapping[str, Entry], known: Mapping[str, str]) -> None:
    for name in known:
        dtype = catalog[name].dtype
        if dtype not in DTYPES or dtype == "F4":
            raise _core.Misuse(
                f"{name}: torch has no tensors whose elements are {dtype}, so no loader can be asked "
                "where they go; publish its bytes as U8, or pass rename= to leave it out"
            )


def _traced(
    recording: Recording, targets: Mapping[str, torch.Tensor]
) -> tuple[dict[str, list[Traced]], dict[str, str]]:
    """By parameter: the pieces that it is made of, or what its loader does instead of copies."""
    writes: dict[str, list[Write]] = {}
    for write in recording.writes:
        writes.setdefault(write.parameter, []).append(write)
    pieces: dict[str, list[Traced]] = {}
    hows: dict[str, str] = {}
    for name, listed in writes.items():
        try:
            pieces[name] = pieces_of(name, targets[name], listed)
        except NotBoxes as other:
            hows[name] = str(other)
    return pieces, hows


def _refuse_changes(recording: Recording, steps: Steps) -> None:
    if recording.changes:
        listed = "\n".join(f"  {name}: {op}" for name, op in recording.changes[:8])
        raise _core.Misuse(
            f"the loader changes parameters otherwise than by copies:\n{listed}\n"
            "their layout cannot be read off it"
        )
    for name, op in recording.stale.items():
        if name in steps:
            raise _core.Misuse(
                f"{name}: its loader reads it ({op}) before it has filled what it reads, so what comes "
                "of it depends on what was there; its layout cannot be read off it"
            )


def _decided(reading: Reading, name: str, unsourced: Reasons) -> bool:
    reason = matching(name, unsourced)
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
    taken = {t for w in recording.writes if w.mark is not None for t in w.mark.tensors}
    left: list[str] = []
    decided: dict[str, list[str]] = {}
    for name in catalog:
        if name in taken:
            continue
        reason = matching(name, allowed)
        if reason is None and name in known:
            reason = matching(known[name], allowed)
        elif reason is None:
            reason = "left out by rename"
        if reason is not None:
            reading.leave(name, catalog[name], reason)
            decided.setdefault(reason, []).append(name)
        elif name in recording.reached:
            reading.elsewhere[name] = recording.reached[name]
        else:
            left.append(name)
    decided.pop(OTHERS, None)
    for reason, names in decided.items():
        log.warning("%d published tensors are not used (%s): %s", len(names), reason, names[0])
    if left:
        advice = "rename them as the engine's loader expects, or pass unused={pattern: reason}"
        raise _core.LayoutMismatch(
            unmatched("published tensors that the engine does not take", left, taken, advice)
        )
