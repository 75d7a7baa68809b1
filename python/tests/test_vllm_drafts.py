"""Drafts and moving experts of a vLLM engine, and engines that start without a checkpoint, without vLLM."""

from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import Settings

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.boxes.pieces import ParameterPiece  # noqa: E402
from weightcast.adapters.catalog import Entry  # noqa: E402
from weightcast.adapters.vllm import experts  # noqa: E402
from weightcast.adapters.vllm.draft import loading  # noqa: E402
from weightcast.adapters.vllm.draft.both import WithDraft  # noqa: E402
from weightcast.adapters.vllm.draft.which import Draft, draft_of, prefix_of  # noqa: E402

NO = RuntimeError("no")


def config(method: str | None = "eagle", own: str = "model", draft: str = "draft", **more: Any) -> Any:
    speculative = SimpleNamespace(method=method, draft_model_config=SimpleNamespace(model=draft), parallel_drafting=False, draft_load_config=None)
    vars(speculative).update({name: more.pop(name) for name in ("parallel_drafting", "draft_load_config") if name in more})
    return SimpleNamespace(
        model_config=SimpleNamespace(model=own), speculative_config=None if method is None else speculative, instance_id="i",
        parallel_config=SimpleNamespace(**{"pipeline_parallel_size": 1, "enable_eplb": False, "data_parallel_size": 1, "rank": 0, "world_size": 1} | more),
    )


@pytest.mark.parametrize(("engine", "settings", "prefix"), [
    (config(), {}, "draft."), (config("mtp"), {}, "draft."), (config("mtp", draft="model"), {}, None), (config("eagle", draft="model"), {}, "draft."),
    (config(), {"draft": "d."}, "d."), (config("mtp", draft="model"), {"draft": "d."}, "d."),
])
def test_the_draft_of_an_engine(engine: Any, settings: Any, prefix: Any) -> None:
    model = nn.Linear(1, 1)
    found = draft_of(engine, model, Settings(**settings))
    assert found.model is model and found.prefix == prefix and str(found) == "the draft (Linear)"
    assert found.vllm_config is not engine and found.vllm_config.model_config is engine.speculative_config.draft_model_config
    assert engine.model_config.model == "model", "the engine's own is as it was"


def test_weights_may_lie_apart_from_the_models_config() -> None:
    engine = config("mtp", draft="weights")
    assert prefix_of(engine, Settings()) == "draft."
    engine.model_config.model_weights = "weights"
    assert prefix_of(engine, Settings()) is None


@pytest.mark.parametrize(("engine", "settings"), [
    (config(None), {}), (config(), {"draft": "stale"}), (config("ngram"), {}), (config("ngram_gpu"), {}), (config("suffix"), {}),
])
def test_engines_whose_draft_is_not_updated(engine: Any, settings: Any) -> None:
    assert draft_of(engine, None, Settings(**settings)) is None


@pytest.mark.parametrize(("engine", "model", "why"), [
    (config("medusa"), 1, "updates bring drafts of draft_model, eagle, eagle3, mtp alone"),
    (config(pipeline_parallel_size=2), 1, "only the last pipeline stage has it"),
    (config(), None, "this vLLM does not say which model that is"),
    (config(enable_eplb=True), 1, "the engine moves experts between its workers (enable_eplb)"),
    (config(parallel_drafting=True), 1, "parallel_drafting keeps outside the model what it has made of a mask"),
])
def test_drafts_that_cannot_be_updated(engine: Any, model: Any, why: str) -> None:
    with pytest.raises(wc.Misuse) as caught:
        draft_of(engine, model, Settings())
    assert str(caught.value) == (
        f"this engine guesses tokens with a draft model ({engine.speculative_config.method}), which updates would leave as it was loaded: "
        f"{why}; accept that with draft='stale' in init_info, or start the engine without it"
    )


def test_a_draft_model_may_draft_in_parallel() -> None:
    assert draft_of(config("draft_model", parallel_drafting=True), nn.Linear(1, 1), Settings()) is not None


def test_names_of_a_draft() -> None:
    renamed = {"p.draft.a": "draft.a", "p.a": "a", "p.x": None}
    for prefix, rename, names in (
        ("draft.", None, {"draft.a": "a", "a": None}), (None, None, {"draft.a": "draft.a", "a": "a"}),
        ("draft.", renamed.get, {"p.draft.a": "a", "p.a": None, "p.x": None}), (None, renamed.get, {"p.draft.a": "draft.a", "p.x": None}),
    ):
        assert {name: Draft(None, None, prefix).known_name(name, rename) for name in names} == names


class Half:
    """`LiveLayout` of one of both."""

    def __init__(self, log: list[Any], name: str, always: bool, old: bool = False) -> None:
        self.log, self.name, self.always_beside, self.old = log, name, always, old

    def layout(self, **named: Any) -> Any:
        self.log.append((self.name, named))
        return self.name

    def stale(self) -> bool:
        return self.old

    def __getattr__(self, name: str) -> Any:
        return lambda: self.log.append(f"{self.name} {name}")


@pytest.mark.parametrize(("target", "draft"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("beside", [False, True])
def test_a_model_and_its_draft_are_one_layout(target: bool, draft: bool, beside: bool) -> None:
    log: list[Any] = []
    both = WithDraft(Half(log, "model", target), Half(log, "draft", draft))
    beside_both = beside or target or draft
    assert both.always_beside == (target or draft) and both.layout(stage=True, beside=beside) == "draft"
    assert log == [("model", {"stage": True, "beside": beside_both}), ("draft", {"stage": True, "beside": beside_both, "into": "model"})]
    log.clear()
    both.layout()
    assert log[0] == ("model", {"stage": False, "beside": target or draft})
    log.clear()
    both.check()
    both.finish()
    assert log == ["model check", "draft check", "model finish", "draft finish"] and not both.stale()
    for one in (both.target, both.draft):
        one.old = True
        assert both.stale()
        one.old = False


@pytest.mark.parametrize(("engine", "settings", "unused"), [
    (config(None), {}, None), (config("ngram"), {}, None), (config(), {"draft": "stale"}, None),
    (config(), {"unused": {"a": "why"}}, {"a": "why", "draft.*": "the draft's"}),
    (config(), {"draft": "d[0]."}, {"d[[]0].*": "the draft's"}),
    (config("mtp", draft="model"), {"unused": {"a": "why"}}, {"a": "why", "*": "the draft's, if it is not the model's"}),
])
def test_what_a_model_leaves_to_its_draft(engine: Any, settings: Any, unused: Any) -> None:
    told = loading.told_beside_draft(engine, Settings(**settings))
    assert told == (None if unused is None else Settings(**settings).reading() | {"unused": unused, "rename": told["rename"]})


class Guesses(nn.Module):
    """Notes what it is given to load."""

    def load_weights(self, weights: Any) -> None:
        self.given = dict(weights)


@pytest.mark.parametrize("method", ["eagle", "draft_model"])
def test_a_draft_is_loaded_with_what_came_with_its_model(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    read: list[Any] = []
    monkeypatch.setattr(loading, "read_draft", lambda *told, **named: read.append((told, named)))
    model, a = Guesses(), torch.ones(2)
    settings = Settings(unsourced={"z": "why"}, prefix="p.")
    loading.load_draft(model, config(method), settings, {"p.draft.a": a, "p.b": torch.ones(1)})
    assert list(model.given) == ["a"] and model.given["a"] is a
    ((draft, catalog), named), = read
    assert draft == Draft(model, None, "draft.") and set(catalog) == {"p.draft.a", "p.b"} and catalog["p.draft.a"] == Entry((2,), "F32")
    shared = dict.fromkeys(loading.SHARED, "the model's own") if method == "eagle" else {}
    assert named == {"unused": {}, "unsourced": {"z": "why"} | shared, "rename": settings.known_name}
    with pytest.raises(wc.Misuse, match="^draft='stale' leaves the draft as it was loaded, and here it is to be loaded; "):
        loading.load_draft(model, config(), Settings(draft="stale"), {})


class Shard:
    """`EngineShard` of an engine that starts."""

    def __init__(self, rig: Any, settings: Settings, replica: Any, read: Any) -> None:
        self.rig, self.handle = rig, SimpleNamespace(epoch=6)
        rig.log.append(("joins", settings, replica))
        read("catalog")

    def fetch(self, version: Any) -> None:
        self.rig.log.append(("fetch", version))
        if self.rig.fails:
            raise self.rig.fails

    def install(self) -> int:
        self.rig.log.append("install")
        return 3

    def close(self) -> None:
        self.rig.log.append("close")


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine that starts without a checkpoint."""
    class BaseModelLoader:
        def __init__(self, load_config: Any) -> None:
            self.load_config = load_config

    rig = SimpleNamespace(log=[], fails=None, config=config(None))
    stand_in(monkeypatch, "vllm", {
        "vllm.config": {"get_current_vllm_config": lambda: rig.config},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": BaseModelLoader},
    }, ["weightcast.adapters.vllm.loader"])
    from weightcast.adapters.vllm import loader

    monkeypatch.setattr(loader, "EngineShard", lambda *told: Shard(rig, *told))
    monkeypatch.setattr(loader, "read", lambda *told, **named: rig.log.append(("read", *told, named)) or SimpleNamespace(left={"draft.a": 1}))
    monkeypatch.setattr(loader, "load_draft", lambda *told: rig.log.append(("load draft", *told)))
    rig.loader = loader
    rig.load = loader.WeightcastLoader(SimpleNamespace(model_loader_extra_config={"model": "m", "replica": "r"}))
    return rig


def test_an_engine_starts_with_what_its_peers_have(start: Any) -> None:
    model, loader = nn.Linear(1, 1), start.loader
    assert loader.loaded_version(model) is loader.loaded_run(model) is None
    start.load.download_model(None)
    start.load.load_weights(model, SimpleNamespace(runner_type="generate"))
    settings = Settings(model="m", replica="r", landing="in_place")
    assert start.log == [("joins", settings, wc.Replica("r", 0, 1)), ("read", model, "catalog", settings.reading()), ("fetch", "latest"), "install", "close"]
    assert (loader.loaded_version(model), loader.loaded_run(model)) == (3, 6)
    start.fails, other = NO, nn.Linear(1, 1, device="meta")
    start.log.clear()
    with pytest.raises(RuntimeError, match="no"):
        start.load.load_weights(other, SimpleNamespace(runner_type="generate"))
    assert start.log[0][1].landing == "staged" and start.log[-1] == "close" and loader.loaded_version(other) is None
    plain = loader.WeightcastLoader(SimpleNamespace(model_loader_extra_config=None))
    assert plain._settings == Settings() and plain.load_config.model_loader_extra_config is None


@pytest.mark.parametrize("own", [None, "a load format"])
def test_a_draft_starts_with_what_came_with_its_model(start: Any, own: Any) -> None:
    start.config = config("eagle", draft_load_config=own)
    model, draft = nn.Linear(1, 1), nn.Linear(1, 1)
    start.load.load_weights(model, SimpleNamespace(runner_type="generate"))
    assert start.log[1][3]["unused"] == {"draft.*": "the draft's"}
    for came in ({"draft.a": 1} if own is None else {}, {}):
        start.log.clear()
        start.load.load_weights(draft, SimpleNamespace(runner_type="draft"))
        assert start.log == [("load draft", draft, start.config, start.load._settings, came)], "once"


# Experts that move.


def test_which_expert_lies_where() -> None:
    assert experts._by_slot([[2, 0], [1, -1], [3, -1]]) == (0, 1, 0, 2)
    layer = SimpleNamespace(moe_config=SimpleNamespace(moe_parallel_config=SimpleNamespace(ep_rank=2, ep_size=4)))
    assert experts._first_slot(layer, 8) == 4


def test_layers_whose_experts_move(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1))
    for layer, state in zip(model, (None, SimpleNamespace(logical_to_physical_map=None), SimpleNamespace(logical_to_physical_map=torch.tensor([[1], [0]]))), strict=True):
        layer.eplb_state = state
    found = [SimpleNamespace(moe_layers=list(model))]
    stand_in(monkeypatch, "vllm", {"vllm.model_executor.models.interfaces": {"get_mixture_of_experts_model": lambda model: found[0]}}, [])
    assert experts.placed(model) == {"2": (1, 0)}
    found[0] = None
    assert experts.placed(model) == {}


@pytest.mark.parametrize("moving", [False, True])
def test_vllm_that_does_not_say_where_experts_are_may_not_move_them(monkeypatch: pytest.MonkeyPatch, moving: bool) -> None:
    stand_in(monkeypatch, "vllm", {"vllm.model_executor.models.interfaces": {}}, [])
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[1].moe_config = SimpleNamespace(moe_parallel_config=SimpleNamespace(enable_eplb=moving))
    if not moving:
        assert experts.placed(model) == {}
        return
    with pytest.raises(wc.Misuse, match="from vLLM 0.28 on.*--enable-eplb"):
        experts.placed(model)


def piece(expert: int, slot: int) -> ParameterPiece:
    made = object.__new__(ParameterPiece)
    vars(made).update(tensor=f"l.experts.{expert}.up.weight", shape=(2, 2), target=SimpleNamespace(start=(slot, 0)))
    return made


def test_a_reading_follows_experts_that_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "_at_start", lambda slots, count: list(range(count)) + list(range(slots - count)))
    monkeypatch.setattr(experts, "_first_slot", lambda layer, slots: 2)
    monkeypatch.setattr(experts, "replace", lambda one, tensor: tensor)
    catalog = {f"l.experts.{n}.up.weight": Entry((2, 2), "F32") for n in range(3)}
    model = nn.Module()
    model.l = nn.Module()

    def reading(**more: Any) -> Any:
        records = [SimpleNamespace(name="l.w13", pieces=[piece(2, 0), piece(0, 1)]), SimpleNamespace(name="ll.w", pieces=["as it is"])]
        return SimpleNamespace(**{"records": records, "staged": {}, "whole": {}} | more)

    found = reading()
    experts.follow(found, model, catalog, {"l": (0, 1, 1, 2)})
    assert [record.pieces for record in found.records] == [["l.experts.1.up.weight", "l.experts.2.up.weight"], ["as it is"]]
    for converted in (reading(staged={"l.w13": 1}), reading(whole={"l.experts.0.up.weight": 1})):
        with pytest.raises(wc.Misuse) as caught:
            experts.follow(converted, model, catalog, {"l": (0, 1, 1, 2)})
        assert str(caught.value) == (
            "l.w13: the loader converts these experts, and the engine moves them (enable_eplb); start the engine without EPLB"
        )
    for other in ({}, {"l.experts.1.up.weight": Entry((3, 2), "F32")}):
        with pytest.raises(wc.Misuse, match=r"^l.experts.2.up.weight was read as a tensor of expert 2, in whose place the engine has moved expert 1 "):
            experts.follow(reading(), model, other, {"l": (0, 1, 1, 2)})
