"""The layout of a model and of its draft, each as its own loader fills it."""

import glob
import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from torch import nn

from .... import _core
from ...boxes.pieces import ParameterPiece
from ...catalog import Catalog, catalog_of
from ...live import LiveLayout
from ...live.reading import OTHERS, Record
from ...naming.decisions import DRAFT_LAYER
from ...naming.nearest import unmatched
from ...naming.reasons import Reasons
from ...naming.rename import Rename
from ..model import read
from .both import WithDraft
from .which import Draft

log = logging.getLogger("weightcast")

#: What published names that a draft does not take may be.
UNUSED = {"*t2d": "a table of EAGLE 3 that vLLM makes no use of"}


def read_with(
    draft: Draft,
    model: nn.Module,
    catalog: Any,
    *,
    vllm_config: Any,
    unused: Reasons,
    unsourced: Reasons,
    rename: Rename | None,
) -> WithDraft:
    """The layout of a model and of its draft. The arguments are those of `read`. A parameter that both have
    (an embedding, a head) is laid out once, as the model's."""
    listed = catalog_of(catalog)
    own = {name: e for name, e in listed.items() if draft.known_name(name, rename) is not None}
    left = listed if draft.prefix is None else {n: e for n, e in listed.items() if n not in own}
    shared = _shared(model, draft.model)
    sourced = {glob.escape(name): f"the model's own {other}" for name, other in shared.items()}
    guessing = read_draft(draft, own, unused=unused, unsourced={**unsourced, **sourced}, rename=rename)
    both = guessing.leave(shared)
    taken = {glob.escape(name): OTHERS for name in _tensors(guessing, both)}
    target = read(
        model,
        left,
        vllm_config=vllm_config,
        unused={**taken, **unused},
        unsourced=unsourced,
        rename=rename,
    )
    for record in both:
        _tie(draft, record, target, shared[record.name])
    lost = [name for name, why in target.unused.items() if why == DRAFT_LAYER]
    if lost:
        advice = "rename them as the draft's loader expects, or pass unused={pattern: reason}"
        what = f"published tensors that {draft} does not take"
        raise _core.LayoutMismatch(unmatched(what, lost, _tensors(guessing, []), advice))
    return WithDraft(target, guessing)


def read_draft(
    draft: Draft, own: Catalog, *, unused: Reasons, unsourced: Reasons, rename: Rename | None
) -> LiveLayout:
    """The layout of a draft alone; `own` is what it may take of what is published."""
    unused = {"*": OTHERS} if draft.prefix is None else {**unused, **UNUSED}
    try:
        with _incomplete():
            return read(
                draft.model,
                own,
                vllm_config=draft.vllm_config,
                unused=unused,
                unsourced=unsourced,
                rename=lambda name: draft.known_name(name, rename),
            )
    except (_core.LayoutMismatch, _core.Misuse) as error:
        where = f"with {draft.prefix!r} before their names" if draft.prefix else "in the model's checkpoint"
        raise type(error)(
            f"{draft}: {error}\npublish its tensors {where}, in the same version; or leave it as it was "
            "loaded, with draft='stale' in init_info"
        ) from None


def _incomplete() -> AbstractContextManager[None]:
    """vLLM looks itself, in some versions, whether heads are complete; the layout says what is lacking."""
    try:
        from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
    except ImportError:
        return nullcontext()
    checked: AbstractContextManager[None] = disable_mtp_completeness_check()
    return checked


def _shared(model: nn.Module, draft: nn.Module) -> dict[str, str]:
    """By parameter of the draft that is the model's too: the model's name of it."""
    own = {id(parameter): name for name, parameter in model.named_parameters()}
    every = draft.named_parameters(remove_duplicate=False)
    return {name: own[id(parameter)] for name, parameter in every if id(parameter) in own}


def _tensors(live: LiveLayout, more: list[Record]) -> set[str]:
    """The published tensors that a layout takes, and those of further records."""
    filling = {name for record in (*live.records, *more) for name in _filling(record)}
    return filling | set(live.whole) | set(live.elsewhere)


def _filling(record: Record) -> set[str]:
    return {each.tensor for piece in record.pieces for each in (piece, *piece.also)}


def _tie(draft: Draft, record: Record, target: LiveLayout, name: str) -> None:
    """Has a parameter of the model stand for what is published of the draft for it as well. Versions in which
    the two differ then fail to verify: vLLM has a draft share what was equal when the engine started."""
    own = next((each for each in target.records if each.name == name), None)
    theirs = {piece.target: piece for piece in record.pieces}
    if own is None or {piece.target for piece in own.pieces} != set(theirs):
        raise _core.Misuse(
            f"{draft}: {record.name} is the model's own {name}, which is filled otherwise; leave the draft "
            "as it was loaded, with draft='stale' in init_info"
        )
    own.pieces[:] = [_as_well(piece, theirs[piece.target]) for piece in own.pieces]
    other = sorted(_filling(own) - {piece.tensor for piece in own.pieces})
    if other:
        log.warning("%s: %s lies in %s: a version is refused in which they differ", draft, other[0], name)


def _as_well(piece: ParameterPiece, other: ParameterPiece) -> ParameterPiece:
    known = {each.tensor for each in (piece, *piece.also)}
    more = [each for each in (replace(other, also=()), *other.also) if each.tensor not in known]
    return replace(piece, also=(*piece.also, *more))
