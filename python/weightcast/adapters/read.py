"""Reads the layout of a live model off what its own loader does."""

import fnmatch
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .. import _core
from .catalog import Entry
from .live import LiveLayout
from .naming import Rename, known_names
from .nearest import unmatched
from .owners import Owners
from .parameter import read_parameter
from .record import record
from .recorder import Recording, Refused, Write

log = logging.getLogger("weightcast")

#: Why a name may be left over, by pattern (`fnmatch`).
Reasons = Mapping[str, str]

def read(
    parameters: Mapping[str, torch.Tensor],
    load: Callable[[Iterable[tuple[str, torch.Tensor]]], Any],
    catalog: Mapping[str, Entry],
    *,
    memory: Mapping[str, torch.Tensor] | None = None,
    unused: Reasons,
    unsourced: Reasons,
    rename: Rename | None = None,
) -> LiveLayout:
    """The layout of `parameters` as `load` fills them from the published tensors of `catalog`.

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
    live = LiveLayout(targets)
    live._load, live._known = load, known
    _refuse_changes(recording)
    by_parameter: dict[str, list[Write]] = {}
    for write in recording.writes:
        by_parameter.setdefault(write.parameter, []).append(write)
    left = []
    owners = Owners(targets)
    for name, target in targets.items():
        filled, owner = 0, owners.of(target)
        if owner not in (None, name):
            live.unsourced[name] = f"a view of {owner}"
            continue
        if name in by_parameter:
            filled = read_parameter(live, name, target, by_parameter[name], recording)
        elif name not in parameters:
            continue
        if filled < target.numel() and not _decided(live, name, unsourced):
            left.append(f"{name} ({filled} of {target.numel()} elements are filled)")
    if left:
        what, advice = "parameters that nothing published fills", (
            "publish them under the names that the engine's loader knows, or pass unsourced="
        )
        raise _core.LayoutMismatch(unmatched(what, left, catalog, advice))
    _leave_unused(live, recording, catalog, known, unused)
    return live


def _refuse_changes(recording: Recording) -> None:
    if recording.changes:
        listed = "\n".join(f"  {name}: {op}" for name, op in recording.changes[:8])
        raise _core.Misuse(
            f"the loader changes parameters otherwise than by copies:\n{listed}\n"
            "their layout cannot be read off it"
        )


def _decided(live: LiveLayout, name: str, unsourced: Reasons) -> bool:
    reason = _reason(name, unsourced)
    if reason is not None:
        live.unsourced[name] = reason
    return reason is not None


def _leave_unused(
    live: LiveLayout,
    recording: Recording,
    catalog: Mapping[str, Entry],
    known: Mapping[str, str],
    allowed: Reasons,
) -> None:
    taken = {w.mark.tensor for w in recording.writes if w.mark is not None}
    left, decided = [], {}
    for name in catalog:
        if name in taken:
            continue
        reason = _reason(name, allowed)
        if reason is None and name in known:
            reason = _reason(known[name], allowed)
        elif reason is None:
            reason = "left out by rename"
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
