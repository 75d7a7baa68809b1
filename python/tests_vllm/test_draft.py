"""Drafts and the models that they guess for, in one layout and one update."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import weightcast as wc
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog, Entry, catalog_of
from weightcast.adapters.engine import Settings
from weightcast.adapters.live import LiveLayout
from weightcast.adapters.vllm.draft import draft_of, load_draft, read_with
from weightcast.adapters.vllm.draft.both import WithDraft
from weightcast.testing import Checkpoint, conform, conformance

from .drafts import KINDS, Kind, Pair, kind
from .engine import spread
from .ranks import Ranks, blank


def read(pair: Pair, catalog: Catalog, **settings: Any) -> WithDraft:
    told = Settings(**settings)
    draft = draft_of(pair.vllm_config, pair.draft, told)
    # As before vLLM processes weights: on CPUs it would pack experts for good.
    return read_with(replace(draft, vllm_config=None), pair.target, catalog, vllm_config=None, **told.reading())


class Pairs(Ranks):
    """The ranks of an engine with a draft, for the conformance kit."""

    def __init__(self, ranks: int, of: Kind, directory: Path) -> None:
        super().__init__(ranks, lambda rank: Pair(of, directory, tp=ranks, rank=rank), read)

    def read(self, rank: int, model: Pair, catalog: Catalog) -> Any:
        spread(self.ranks, 1, rank)
        live = read(model, catalog)
        guessing = [replace(record, name=f"draft.{record.name}") for record in live.draft.records]
        live.records = [*live.target.records, *guessing]
        live.whole = {**live.target.whole, **live.draft.whole}
        return live

    def load(self, rank: int, model: Pair, tensors: Iterable) -> None:
        spread(self.ranks, 1, rank)
        model.load(tensors)


def without_tables(of: Kind) -> Catalog:
    """What is needed: vLLM makes no use of a table of EAGLE 3."""
    return {name: entry for name, entry in of.catalog.items() if not name.endswith("t2d")}


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_a_pair_conforms(name: str, tp: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = kind(name, tmp_path)
    if name == "eagle3":
        # Its loader takes all names before it looks at one, and then tells of them by its own.
        monkeypatch.setattr(conformance, "NAMES", 0)
    drawn = blank(without_tables(of)).tensors
    copies = {name: of.copies[name] for name in drawn if name in of.copies}
    alone = Checkpoint({name: t for name, t in drawn.items() if name not in copies}, copies)
    conform(Pairs(tp, of, tmp_path), alone, seed=tp)


@pytest.mark.parametrize("name", ["eagle", "eagle3", "mimo"])
def test_what_both_have_is_laid_out_once(name: str, tmp_path: Path) -> None:
    of = kind(name, tmp_path)
    pair = Pair(of, tmp_path)
    live = read(pair, without_tables(of))
    assert pair.draft.model.embed_tokens is pair.target.model.embed_tokens
    assert not any("embed_tokens" in record.name for record in live.draft.records)
    listed = live.layout(stage=True)
    own = {id(p): p.nbytes for p in pair.parameters()}
    assert listed.nbytes == sum(own.values())


@pytest.mark.parametrize(
    ("name", "lacking", "told"),
    [
        ("draft_model", "draft.", "model.embed_tokens.weight"),
        ("eagle", "draft.fc.", "model.fc.weight"),
        ("deepseek", "model.layers.{end}.", "model.layers.{end}.eh_proj.weight"),
        ("mimo", "model.mtp_layers.", "model.mtp_layers.{end}.final_layernorm.weight"),
    ],
)
def test_a_draft_of_which_something_is_lacking_is_refused(
    name: str, lacking: str, told: str, tmp_path: Path
) -> None:
    of = kind(name, tmp_path)
    lacking, told = (said.format(end=of.config["num_hidden_layers"]) for said in (lacking, told))
    catalog = {n: entry for n, entry in of.catalog.items() if not n.startswith(lacking)}
    with pytest.raises(wc.LayoutMismatch, match=rf"(?s)the draft .*{told} \(0 of .*draft='stale'"):
        read(Pair(of, tmp_path), catalog)


@pytest.mark.parametrize("equal", [True, False])
def test_an_embedding_that_vllm_shares_holds_both_or_is_refused(equal: bool, tmp_path: Path) -> None:
    """Versions in which they differ are."""
    of = kind("eagle", tmp_path)
    pair = Pair(of, tmp_path)
    [(own, one)] = of.copies.items()
    values = blank(of.catalog).version(1)
    if equal:
        values[own].copy_(values[one])
    listed, live = wc.Layout(), read(pair, catalog_of({n: (t.shape, t.dtype) for n, t in values.items()}))
    for name, tensor in values.items():
        listed.add(tensor, name)
    held = pair.target.model.embed_tokens.weight.data.fill_(7)
    with (
        wc.serve() as server,
        wc.open("policy", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address) as trainer,
        wc.open("policy", wc.Replica("rollout"), server=server.address) as rollout,
    ):
        trainer.register(listed)
        rollout.register(live.layout(stage=True, beside=True))
        with trainer.published(version=1):
            if equal:
                rollout.update()
                live.finish()
            else:
                with pytest.raises(wc.DigestMismatch):
                    rollout.update()
    held = held[: len(values[one])]
    assert torch.equal(held, values[one] if equal else torch.full_like(held, 7))


def test_a_draft_has_the_prefix_that_it_is_given(tmp_path: Path) -> None:
    of = kind("mimo", tmp_path)
    pair = Pair(of, tmp_path)
    moved = {n.replace("model.mtp_", "policy.guess.model.mtp_"): e for n, e in of.catalog.items()}
    catalog = {n if n.startswith("policy.") else f"policy.{n}": entry for n, entry in moved.items()}
    live = read(pair, catalog, prefix="policy.", draft="guess.")
    assert [r.as_json() for r in live.target.records] != []
    assert len(live.draft.records) == len(read(pair, of.catalog).draft.records)
    with pytest.raises(wc.Misuse, match="'stale', or a prefix of names that ends in a dot, not 'guess'"):
        Settings(draft="guess")


def test_what_neither_takes_is_an_error(tmp_path: Path) -> None:
    of = kind("deepseek", tmp_path)
    layers = of.config["num_hidden_layers"]
    catalog = {**of.catalog, f"model.layers.{layers}.self_attn.o_proj.bias": Entry((2,), "BF16")}
    with pytest.raises(wc.LayoutMismatch, match=r"the draft \(DeepSeekMTP\) does not take:\n.*o_proj\.bias"):
        read(Pair(of, tmp_path), catalog)


def test_a_draft_that_is_published_and_left_stale_arrives_beside(tmp_path: Path) -> None:
    of = kind("eagle", tmp_path)
    pair = Pair(of, tmp_path)
    told = Settings(draft="stale", unused={"draft.*": "stale"})
    assert draft_of(pair.vllm_config, pair.draft, told) is None
    live = vllm.read(pair.target, of.catalog, **told.reading())
    copy = pair.target.model.embed_tokens.weight[: of.config["vocab_size"]].nbytes
    both = sum(parameter.nbytes for parameter in pair.parameters())
    assert live.layout(stage=True).nbytes == both + copy, "a replica holds a version whole"
    assert set(live.left) == {name for name in of.catalog if name.startswith("draft.")}


@pytest.mark.parametrize(("name", "fails"), [("draft_model", True), ("eagle", False)])
def test_a_draft_is_loaded_whole_or_not_at_all(name: str, fails: bool, tmp_path: Path) -> None:
    """But for what vLLM has it share afterwards."""
    of = kind(name, tmp_path)
    pair, values = Pair(of, tmp_path), blank(without_tables(of)).version(1)
    came = {n: t for n, t in values.items() if n.startswith("draft.") and "embed_tokens" not in n}
    if fails:
        with pytest.raises(wc.LayoutMismatch, match=r"embed_tokens\.weight \(0 of"):
            load_draft(pair.draft, pair.vllm_config, Settings(), came)
        return
    load_draft(pair.draft, pair.vllm_config, Settings(), came)
    assert torch.equal(pair.draft.model.fc.weight, came["draft.fc.weight"])
    with pytest.raises(wc.Misuse, match="draft_load_config"):
        load_draft(pair.draft, pair.vllm_config, Settings(draft="stale"), came)


def test_drafts_that_cannot_be_updated_are_refused(tmp_path: Path) -> None:
    pair = Pair(kind("eagle", tmp_path), tmp_path)
    whole, speculative = pair.vllm_config, pair.vllm_config.speculative_config

    def refused(why: str) -> None:
        with pytest.raises(wc.Misuse, match=f"{why}; accept that with draft='stale'"):
            draft_of(whole, pair.draft, Settings())
        assert draft_of(whole, pair.draft, Settings(draft="stale")) is None

    with pytest.raises(wc.Misuse, match="does not say which model that is"):
        draft_of(whole, None, Settings())
    speculative.parallel_drafting = True
    refused("keeps outside the model what it has made of a mask")
    whole.parallel_config.enable_eplb = True
    refused("moves experts between its workers .enable_eplb.")
    whole.parallel_config.pipeline_parallel_size = 2
    refused("only the last pipeline stage has it")
    speculative.method = "medusa"
    refused("drafts of draft_model, eagle, eagle3, mtp alone")
    speculative.method = "ngram"
    assert draft_of(whole, None, Settings()) is None


class Asked:
    """A layout that notes what it is asked for."""

    def __init__(self, always_beside: bool) -> None:
        self.always_beside = always_beside
        self.asked: list[dict[str, Any]] = []

    def layout(self, **asked: Any) -> "Asked":
        self.asked.append(asked)
        return self


@pytest.mark.parametrize("stage", [False, True])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("always", [(False, False), (True, False), (False, True)])
def test_both_land_beside_where_one_of_them_always_does(
    always: tuple[bool, bool], beside: bool, stage: bool
) -> None:
    target, draft = map(Asked, always)
    both = WithDraft(cast(LiveLayout, target), cast(LiveLayout, draft))
    both.layout(stage=stage, beside=beside)
    expected = beside or any(always)
    assert both.always_beside == any(always)
    assert target.asked == [{"stage": stage, "beside": expected}]
    assert draft.asked == [{"stage": stage, "beside": expected, "into": target}]
