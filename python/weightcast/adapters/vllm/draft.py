"""The model with which an engine guesses tokens (speculative decoding): updated in one step with the model
that it guesses for. vLLM's own sessions for a draft (`start_draft_weight_update`) would be a second step."""

import copy
import glob
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ... import _core
from ... import layout as layouts
from ..boxes.pieces import ParameterPiece
from ..catalog import Catalog, catalog_of
from ..engine import Settings
from ..engine.settings import STALE
from ..live import LiveLayout
from ..live.reading import OTHERS, Record
from ..naming.decisions import DRAFT_LAYER
from ..naming.nearest import unmatched
from ..naming.rename import Rename
from .model import read

log = logging.getLogger("weightcast")

#: vLLM's ways of guessing whose models are updated, and those that have no model.
UPDATED = ("draft_model", "eagle", "eagle3", "mtp")
WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix")
#: What published names of a draft with a checkpoint of its own begin with, if nothing else is said.
PREFIX = "draft."


@dataclass(frozen=True)
class Draft:
    """The draft of an engine."""

    model: nn.Module
    #: The engine's, with the draft's model config.
    vllm_config: Any
    #: What published names of the draft begin with; None for heads that the model's own checkpoint has.
    prefix: str | None

    def __str__(self) -> str:
        return f"the draft ({type(self.model).__name__})"


def draft_of(vllm_config: Any, model: nn.Module | None, settings: Settings) -> Draft | None:
    """The draft that updates bring with them. None if the engine has none, or `settings` leave it as it was
    loaded. Raises `Misuse` for one that cannot be updated. `model` is the draft of vLLM's worker."""
    speculative = vllm_config.speculative_config
    if speculative is None or settings.draft == STALE or speculative.method in WITHOUT_MODEL:
        return None
    why = _not_updated(vllm_config, model)
    if why is not None or model is None:
        raise _core.Misuse(
            f"this engine guesses tokens with a draft model ({speculative.method}), which updates would "
            f"leave as it was loaded: {why}; accept that with draft='stale' in init_info, or start the "
            "engine without it"
        )
    config = copy.copy(vllm_config)
    config.model_config = speculative.draft_model_config
    return Draft(model, config, settings.draft or (None if _inside(vllm_config) else PREFIX))


def _not_updated(vllm_config: Any, model: nn.Module | None) -> str | None:
    speculative, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    if speculative.method not in UPDATED:
        return f"updates bring drafts of {', '.join(UPDATED)} alone"
    if model is None:
        return "this vLLM does not say which model that is"
    if parallel.pipeline_parallel_size > 1:
        return "only the last pipeline stage has it"
    if getattr(parallel, "enable_eplb", False):
        return "the engine moves experts between its workers (enable_eplb)"
    if speculative.parallel_drafting and speculative.method != "draft_model":
        return "parallel_drafting keeps outside the model what it has made of a mask"
    return None


def _inside(vllm_config: Any) -> bool:
    """Whether the draft was loaded from the checkpoint of the model itself."""
    own, speculative = vllm_config.model_config, vllm_config.speculative_config
    places = (own.model, getattr(own, "model_weights", None))
    return bool(speculative.method == "mtp" and speculative.draft_model_config.model in places)


class WithDraft:
    """The layouts of a model and of its draft as one: one version fills them, and is installed in both."""

    def __init__(self, target: LiveLayout, draft: LiveLayout) -> None:
        self.target, self.draft = target, draft
        #: Whether bytes land beside the parameters whatever `layout` is asked for.
        self.always_beside = target.always_beside or draft.always_beside

    def layout(self, *, stage: bool = False, beside: bool = False) -> layouts.Layout:
        """As `LiveLayout.layout`, of both."""
        beside = beside or self.always_beside
        listed = self.target.layout(stage=stage, beside=beside)
        return self.draft.layout(stage=stage, beside=beside, into=listed)

    def stale(self) -> bool:
        """Whether one of them has to be read again."""
        return self.target.stale() or self.draft.stale()

    def check(self) -> None:
        """Raises if one of them has become that of other tensors."""
        self.target.check()
        self.draft.check()

    def finish(self) -> None:
        """Puts in place what has arrived for both."""
        self.target.finish()
        self.draft.finish()


def read_with(
    draft: Draft,
    model: nn.Module,
    catalog: Any,
    *,
    vllm_config: Any,
    unused: Mapping[str, str],
    unsourced: Mapping[str, str],
    rename: Rename | None,
) -> WithDraft:
    """The layout of a model and of its draft, each as its own `load_weights` fills it. The arguments are
    those of `read`. A parameter that both have (an embedding, a head) is laid out once, as the model's."""
    listed = catalog_of(catalog)
    decisions = {"unsourced": unsourced, "rename": rename, "vllm_config": vllm_config}
    own, left = _divided(listed, draft, rename)
    shared = _shared(model, draft.model)
    guessing = _read_draft(draft, own, shared, unused, decisions)
    dropped = guessing.leave(shared)
    taken = {glob.escape(name): OTHERS for name in _tensors(guessing, dropped)}
    target = read(model, left, unused={**taken, **unused}, **decisions)
    for record in dropped:
        _tie(draft, record, target, shared[record.name])
    lost = [name for name, why in target.unused.items() if why == DRAFT_LAYER]
    if lost:
        advice = "rename them as the draft's loader expects, or pass unused={pattern: reason}"
        what = f"published tensors that {draft} does not take"
        raise _core.LayoutMismatch(unmatched(what, lost, _tensors(guessing, []), advice))
    return WithDraft(target, guessing)


def _divided(listed: Catalog, draft: Draft, rename: Rename | None) -> tuple[Catalog, Catalog]:
    """What the draft may take of what is published, and what the model may."""
    if draft.prefix is None:
        return listed, listed
    own = {n: e for n, e in listed.items() if (_known(n, rename) or "").startswith(draft.prefix)}
    return own, {name: entry for name, entry in listed.items() if name not in own}


def _known(name: str, rename: Rename | None) -> str | None:
    return name if rename is None else rename(name)


def _shared(model: nn.Module, draft: nn.Module) -> dict[str, str]:
    """By parameter of the draft that is the model's too: the model's name of it."""
    own = {id(parameter): name for name, parameter in model.named_parameters()}
    every = draft.named_parameters(remove_duplicate=False)
    return {name: own[id(parameter)] for name, parameter in every if id(parameter) in own}


def _read_draft(
    draft: Draft,
    own: Catalog,
    shared: Mapping[str, str],
    unused: Mapping[str, str],
    decisions: Mapping[str, Any],
) -> LiveLayout:
    prefix, rename = draft.prefix, decisions["rename"]
    sourced = {glob.escape(name): f"the model's own {other}" for name, other in shared.items()}
    others = {"*": OTHERS} if prefix is None else {"*t2d": "a table that vLLM makes no use of"}

    def known(name: str) -> str | None:
        found = _known(name, rename)
        return found if found is None or prefix is None else found.removeprefix(prefix)

    try:
        with _incomplete():
            return read(
                draft.model,
                own,
                vllm_config=draft.vllm_config,
                unused={**unused, **others},
                unsourced={**decisions["unsourced"], **sourced},
                rename=known,
            )
    except (_core.LayoutMismatch, _core.Misuse) as error:
        where = "in the model's checkpoint" if prefix is None else f"with {prefix!r} before their names"
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


def _tensors(live: LiveLayout, dropped: list[Record]) -> set[str]:
    """The published tensors that a draft takes, or that lie in what it shares."""
    filling = {name for record in (*live.records, *dropped) for name in _filling(record)}
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
            f"{draft}: {record.name} is the model's own {name}, which is filled otherwise; leave it as "
            "it was loaded, with draft='stale' in init_info"
        )
    own.pieces[:] = [_as_well(piece, theirs[piece.target]) for piece in own.pieces]
    other = sorted(_filling(own) - {piece.tensor for piece in own.pieces})
    if other:
        log.warning("%s: %s lies in %s: a version is refused in which they differ", draft, other[0], name)


def _as_well(piece: ParameterPiece, other: ParameterPiece) -> ParameterPiece:
    known = {each.tensor for each in (piece, *piece.also)}
    more = [each for each in (replace(other, also=()), *other.also) if each.tensor not in known]
    return replace(piece, also=(*piece.also, *more))
