"""Models of vLLM and SGLang without these: which layers are not as they were loaded, what is derived from parameters, and
what is done again after an update."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.naming.decisions import DRAFT_LAYER, left_out  # noqa: E402
from weightcast.adapters.sglang import model as sglang  # noqa: E402

F32 = torch.float32


def method(name: str, **facts: Any) -> Any:
    return type(name, (), facts)()


class Layers(nn.Module):
    """Two linear layers, the first of them as `facts` say."""

    def __init__(self, **facts: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        for layer in (self.first, self.second):
            layer.quant_method = method("UnquantizedLinearMethod")
        vars(self.first).update(facts)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def load_weights(self, weights: Any) -> None:
        for name, tensor in weights:
            if name in ("first.weight", "second.weight"):
                self.get_parameter(name).copy_(tensor)


CATALOG = {"first.weight": ((2, 2), F32), "second.weight": ((2, 2), F32)}


@pytest.mark.parametrize(
    ("facts", "environment", "why"),
    [
        ({}, {}, None),
        ({"quant_method": None}, {}, None),
        ({"quant_method": method("UnquantizedEmbeddingMethod")}, {}, None),
        ({"quant_method": method("Fp8LinearMethod")}, {}, "Fp8LinearMethod"),
        ({"use_intel_amx_backend": True}, {}, "packed for AMX"),
        ({"quant_method": method("UnquantizedFusedMoEMethod")}, {}, None),
        ({"quant_method": method("UnquantizedFusedMoEMethod", use_flashinfer_trtllm_moe=True)}, {}, "experts packed for FlashInfer's TRT-LLM kernels"),
        ({"quant_method": method("UnquantizedFusedMoEMethod"), "w13_swiglu_interleaved": True}, {}, "experts whose gate and up projections are interleaved"),
        ({"quant_method": method("UnquantizedFusedMoEMethod")}, {"SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED": "True"}, "experts whose gate and up projections are interleaved"),
        ({"quant_method": method("UnquantizedFusedMoEMethod")}, {"SGLANG_USE_AITER": "1"}, "experts shuffled for AITER"),
        ({"quant_method": method("UnquantizedFusedMoEMethod")}, {"SGLANG_USE_AITER": "0"}, None),
        ({}, {"SGLANG_USE_AITER": "1"}, None),
    ],
)
def test_layers_of_sglang_that_are_not_as_they_were_loaded(monkeypatch: pytest.MonkeyPatch, facts: dict, environment: dict, why: str | None) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    model = Layers(**facts)
    assert sglang.rearranged(model) == ({} if why is None else {"first": why})
    if why is None:
        assert len(sglang.read(model, CATALOG).records) == 2
        return
    with pytest.raises(wc.Misuse, match=f"1 layers may not be as they were loaded:\n  first: {why}"):
        sglang.read(model, CATALOG)
    assert len(sglang.read(model, CATALOG, as_loaded=True).records) == 2


def test_a_model_of_sglang_makes_anew_what_it_derives() -> None:
    model, made = Layers(), []
    live = sglang.read(model, CATALOG)
    assert live.derived == {}
    live.layout()
    live.finish()
    model.post_load_weights = lambda: made.append(model.first.weight.sum().item())
    model.register_buffer("table", torch.ones(2))
    model.layer = nn.Module()
    model.layer.attn = nn.Module()
    model.layer.attn.k_scale = nn.Parameter(torch.ones(()), requires_grad=False)
    live = sglang.read(model, CATALOG | {"old": ((1,), F32)}, unused={"old": "why"}, rename=lambda name: name)
    assert live.derived == {"": "Layers.post_load_weights"} and live.unused == {"old": "why"}
    assert live.unsourced == {"layer.attn.k_scale": "a scale of the cache, which the engine sets to 1"}
    layout = live.layout()
    live.finish()
    assert made == [model.first.weight.sum().item()]
    model.first.weight = nn.Parameter(torch.zeros(2, 2), requires_grad=False)
    assert layout.origins.moved().startswith("first.weight: ")


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (None, {}),
        ({"tie_word_embeddings": True}, {"lm_head.weight": "the head is tied to the embedding"}),
        ({"tie_word_embeddings": False, "num_hidden_layers": 3}, {}),
        ({"num_hidden_layers": 3, "num_nextn_predict_layers": 2}, {"model.layers.3.*": DRAFT_LAYER, "model.layers.4.*": DRAFT_LAYER}),
        ({"num_nextn_predict_layers": 2}, {}),
        ({"num_hidden_layers": 3, "num_nextn_predict_layers": None}, {}),
        ({"tie_word_embeddings": True, "text_config": {"num_hidden_layers": 1, "num_nextn_predict_layers": 1}}, {"model.layers.1.*": DRAFT_LAYER}),
    ],
)
def test_what_engines_leave_out_on_purpose(config: dict | None, wanted: dict[str, str]) -> None:
    def told(facts: dict) -> Any:
        return SimpleNamespace(**{name: told(value) if isinstance(value, dict) else value for name, value in facts.items()})

    model = nn.Linear(1, 1)
    if config is not None:
        model.config = told(config)
    assert left_out(model) == {"*rotary_emb.inv_freq": "rotary tables, which the engine computes"} | wanted


# vLLM


class Deferred(nn.Module):
    """An attention layer that derives something from a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2), requires_grad=False)
        self.plain, self.grown = torch.zeros(2), torch.zeros(2)
        self.register_buffer("table", torch.zeros(2))
        self.asked: list[Any] = []

    def process_weights_after_loading(self, dtype: Any) -> None:
        self.asked.append(dtype)
        self.plain, self.table = self.weight * 2, self.weight * 3
        self.grown = torch.ones(3)
        self.fresh = torch.ones(1)


class QuantizeMethodBase:
    def process_weights_after_loading(self, layer: Any) -> None:
        pass


class Packing(QuantizeMethodBase):
    def process_weights_after_loading(self, layer: Any) -> None:
        layer.packed = layer.weight.clone()


class UnquantizedLinearMethod(Packing):
    pass


class UnquantizedEmbeddingMethod(Packing):
    pass


class Experts(Packing):
    def __init__(self, backend: str) -> None:
        self.unquantized_backend = SimpleNamespace(name=backend)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    log: list[Any] = []
    loaded: dict[int, dict[str, torch.Tensor]] = {}

    @contextmanager
    def configured(config: Any) -> Any:
        log.append(("configured", config))
        yield
        log.append("config left")

    def restore(module: nn.Module, info: Any) -> None:
        for name, before in info.restore_metadata[0].items():
            module._parameters[name] = before

    info = {"get_layerwise_info": lambda module: SimpleNamespace(restore_metadata=(loaded.get(id(module), {}), {}))}
    stand_in(monkeypatch, "vllm", {
        "vllm.config": {"set_current_vllm_config": configured},
        "vllm.model_executor.layers.attention": {"is_deferred_attention_layer": lambda module: isinstance(module, Deferred)},
        "vllm.model_executor.layers.quantization.base_config": {"QuantizeMethodBase": QuantizeMethodBase},
        "vllm.model_executor.model_loader.reload": {
            "initialize_layerwise_reload": lambda model: log.append("begun"),
            "finalize_layerwise_reload": lambda model, config: log.append(("ended", config)),
        },
        "vllm.model_executor.model_loader.reload.layerwise": info,
        "vllm.model_executor.model_loader.reload.meta": {"SKIP_TENSORS": {"skipped"}, "restore_layer_on_meta": restore},
    }, ["weightcast.adapters.vllm.processing"])
    import weightcast.adapters.vllm.processing as module

    monkeypatch.setattr(sys.modules["weightcast.adapters.vllm"], "processing", module, raising=False)

    def note(layer: nn.Module, **changes: torch.Tensor) -> None:
        """What vLLM has recorded of a layer as it was loaded."""
        kept = {name: torch.empty_like(p, device="meta") for name, p in layer._parameters.items() if p is not None}
        loaded[id(layer)] = kept | changes

    return SimpleNamespace(log=log, module=module, note=note, loaded=loaded)


CONFIG = SimpleNamespace(model_config=SimpleNamespace(dtype=torch.bfloat16))


def test_what_is_derived_is_made_anew_in_the_memory_that_graphs_read(vllm: Any) -> None:
    model = nn.Module()
    model.layer, model.other = Deferred(), nn.Linear(1, 1)
    assert vllm.module.derived(model) == {"layer": "Deferred.process_weights_after_loading"}
    layer = model.layer
    at = {name: getattr(layer, name).data_ptr() for name in ("weight", "plain", "table")}
    again = vllm.module.redo(model, CONFIG)
    for value in (1.0, 5.0):
        layer.weight.fill_(value)
        again()
        assert layer.plain.tolist() == [2 * value] * 2 and layer.table.tolist() == [3 * value] * 2
        assert at == {name: getattr(layer, name).data_ptr() for name in at}
        assert layer.grown.tolist() == [1.0] * 3, "what has another form lies anew"
    assert layer.asked == [torch.bfloat16] * 2 and vllm.log == [("configured", CONFIG), "config left"] * 2
    whole: list[Any] = []
    model.process_weights_after_loading = lambda: whole.append(len(layer.asked))
    assert list(vllm.module.derived(model)) == ["layer", ""]
    again()
    assert whole == [3], "the model itself is the last"


def test_older_vllm_processes_its_classes_of_attention_last(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = sys.modules["vllm.model_executor.layers.attention"]
    monkeypatch.delattr(attention, "is_deferred_attention_layer")
    for name in ("Attention", "MLAAttention", "MMEncoderAttention"):
        kind = Deferred if name == "MLAAttention" else type(name, (nn.Module,), {})
        monkeypatch.setattr(attention, name, kind, raising=False)
    model = nn.Module()
    model.a, model.b, model.c = Deferred(), nn.Linear(1, 1), attention.Attention()
    model.b.process_weights_after_loading = lambda _: None
    assert list(vllm.module.derived(model)) == ["a"], "of these classes, and with something to do"


def test_parameters_that_are_made_after_loading_have_no_tensor(vllm: Any) -> None:
    model = nn.Module()
    model.layer = nn.Linear(2, 2)
    vllm.note(model.layer)
    model.layer.packed, model.layer.skipped = (nn.Parameter(torch.zeros(1), requires_grad=False) for _ in range(2))
    assert vllm.module.made_later(model) == {"layer.packed": "made by Linear after loading"}


@pytest.mark.parametrize(
    ("quant", "changes", "why"),
    [
        (None, {}, None),
        (QuantizeMethodBase(), {}, None),
        (UnquantizedLinearMethod(), {}, None),
        (UnquantizedEmbeddingMethod(), {}, None),
        (Packing(), {}, "Packing may rearrange it"),
        (Experts("TRITON"), {}, None),
        (Experts("BATCHED_TRITON"), {}, None),
        (Experts("FLASHINFER"), {}, "Experts may rearrange it"),
        (None, {"weight": torch.empty(3, 2, device="meta")}, r"weight is (2, 2) torch.float32, was loaded as (3, 2) torch.float32"),
        (Packing(), {"weight": torch.empty(2, 2, device="meta", dtype=torch.float16)}, r"weight is (2, 2) torch.float32, was loaded as (2, 2) torch.float16"),
        (None, {"weight": torch.empty(2, 2, device="meta").t()}, r"weight is (2, 2) torch.float32, was loaded as (2, 2) torch.float32"),
        (None, {"gone": torch.empty(1, device="meta")}, r"gone is gone, was loaded as (1,) torch.float32"),
    ],
)
def test_layers_of_vllm_that_are_not_as_they_were_loaded(vllm: Any, quant: Any, changes: dict, why: str | None) -> None:
    model = nn.Module()
    model.a, model.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    vllm.note(model.a, **changes)
    vllm.note(model.b)
    model.a.quant_method = quant
    assert vllm.module.rearranged(model) == ({} if why is None else {"a": why})
    model.b.quant_method = Experts("CPU")
    with pytest.raises(wc.Misuse, match="b: its experts are packed for CPUs"):
        vllm.module.rearranged(model)


def test_the_form_of_loading_is_there_inside_only(vllm: Any) -> None:
    def online_process_loader(*_: Any) -> None:
        raise AssertionError("loads nothing any more")

    def own(*_: Any) -> str:
        return "loads"

    model = nn.Module()
    model.layer = nn.Linear(2, 2, bias=False)
    before = model.layer.weight
    form = nn.Parameter(torch.empty(4, 2, device="meta"), requires_grad=False)
    inner = type(online_process_loader)(online_process_loader.__code__, {}, "online_process_loader")
    online_process_loader.__wrapped__, inner.__wrapped__ = inner, own  # type: ignore[attr-defined]
    form.weight_loader = online_process_loader
    vllm.note(model.layer, weight=form)
    for error in (None, KeyError("no")):
        try:
            with vllm.module.load_form(model):
                assert model.layer.weight is form and form.weight_loader() == "loads"
                if error is not None:
                    raise error
        except KeyError:
            pass
        assert model.layer.weight is before


def test_tensors_go_through_vllms_own_reload_which_ends_after_an_error_too(vllm: Any) -> None:
    model = nn.Module()
    model.embed, model.head, model.apart = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    model.head.weight = model.embed.weight
    for layer in (model.embed, model.head, model.apart):
        layer.quant_method = UnquantizedEmbeddingMethod()
    assert vllm.module.tied(model) == [model.head]
    model.load_weights = lambda tensors: vllm.log.append(("loads", tensors))
    load = vllm.module.reload(model, CONFIG)
    load("tensors")
    assert vllm.log == [("configured", CONFIG), "begun", ("loads", "tensors"), ("ended", CONFIG.model_config), "config left"]
    assert hasattr(model.head, "packed") and not hasattr(model.embed, "packed"), "vLLM has packed the other one"
    vllm.log.clear()
    del model.head.packed

    def fails(_: Any) -> None:
        raise KeyError("no")

    model.load_weights = fails
    with pytest.raises(KeyError):
        load("tensors")
    assert ("ended", CONFIG.model_config) in vllm.log and not hasattr(model.head, "packed")
    model.head.quant_method = UnquantizedLinearMethod()
    assert vllm.module.tied(model) == []


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`vllm.read` over what its helpers say."""
    import weightcast.adapters.vllm.model as module

    said = SimpleNamespace(module=module, experts={}, moved={}, made={}, log=[])

    @contextmanager
    def form(model: nn.Module) -> Any:
        said.log.append("form")
        model.register_parameter("raw", nn.Parameter(torch.zeros(1), requires_grad=False))
        yield
        del model.raw
        said.log.append("form left")

    monkeypatch.setattr(module, "placed", lambda model: dict(said.experts))
    monkeypatch.setattr(module, "rearranged", lambda model: said.moved)
    monkeypatch.setattr(module, "made_later", lambda model: said.made)
    monkeypatch.setattr(module, "derived", lambda model: {"x": "who"})
    monkeypatch.setattr(module, "redo", lambda model, config: lambda: said.log.append(("redone", config)))
    monkeypatch.setattr(module, "reload", lambda model, config: lambda tensors: said.log.append(("reloaded", config, [n for n, _ in tensors])))
    monkeypatch.setattr(module, "load_form", form)
    monkeypatch.setattr(module, "follow", lambda reading, model, catalog, now: said.log.append(("follows", now)))
    return said


def test_a_model_of_vllm_in_place(reader: Any) -> None:
    model = Layers()
    model.layer, reader.moved = nn.Module(), {"first": "packed"}
    model.layer.attn = nn.Module()
    model.layer.attn.q_scale, model.layer.late = (nn.Parameter(torch.ones(()), requires_grad=False) for _ in range(2))
    reader.made, reader.experts = {"layer.late": "made later"}, {"e": (0, 1)}
    live = reader.module.read(model, CATALOG | {"old": ((1,), F32)}, unused={"old": "why"})
    assert reader.log == [("follows", {"e": (0, 1)})], "without its engine nothing is asked of that"
    assert live.unsourced == {"layer.attn.q_scale": "an attention scale, which the engine sets to 1", "layer.late": "made later"}
    assert live.unused == {"old": "why"} and live.derived == {"x": "who"} and not live.stale()
    live.layout()
    live.finish()
    assert len(reader.log) == 1
    reader.experts = {"e": (1, 0)}
    assert live.stale()
    reader.moved = {}
    with_engine = reader.module.read(model, CATALOG, vllm_config="config")
    assert not with_engine.stale()
    layout = with_engine.layout()
    with_engine.finish()
    assert reader.log[-1] == ("redone", "config")
    model.first.weight = nn.Parameter(torch.zeros(2, 2), requires_grad=False)
    assert layout.origins.moved().startswith("first.weight: ")


def test_a_model_that_vllm_has_rearranged_goes_through_its_loader(reader: Any) -> None:
    model = Layers()
    reader.moved = {"first": "packed"}
    live = reader.module.read(model, CATALOG, vllm_config="config")
    assert reader.log == ["form", "form left"] and live.derived == {"first": "packed"} and live.always_beside
    live.layout(stage=True)
    live.finish()
    assert reader.log[-1] == ("reloaded", "config", ["first.weight", "second.weight"])
    reader.experts = {"e": (0, 1)}
    with pytest.raises(wc.Misuse, match="knows nothing of experts that have moved"):
        reader.module.read(model, CATALOG, vllm_config="config")
    assert len(reader.module.read(model, CATALOG).records) == 2
