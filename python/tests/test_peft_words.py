"""Models of PEFT without PEFT: names, what counts as unmerged, and what merging makes."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.adapters.peft import merged  # noqa: E402
from weightcast.adapters.peft.names import BaseNames, is_peft  # noqa: E402
from weightcast.adapters.peft.unmerged import adapters_of, why_unmerged  # noqa: E402


class Tuned(nn.Module):
    """A linear layer with adapters, as peft wraps it."""

    adapter_layer_names = ("lora_A", "lora_B")

    def __init__(self, names: tuple[str, ...] = ("one", "two"), dtype: Any = torch.float32, turned: bool = False) -> None:
        super().__init__()
        out, into = (3, 4) if turned else (4, 3)
        self.base_layer = nn.Linear(into, out, bias=False, dtype=dtype)
        self.lora_A = nn.ModuleDict({name: nn.Linear(3, 2, bias=False, dtype=dtype) for name in names})
        self.lora_B = nn.ModuleDict({name: nn.Linear(2, 4, bias=False, dtype=dtype) for name in names})
        self.scaling = {name: 0.5 + number for number, name in enumerate(names)}
        self.active_adapters, self.merged_adapters, self.disable_adapters = list(names), [], False
        self.fan_in_fan_out, self.lora_variant = turned, {}
        self.lora_bias = dict.fromkeys(names, False)

    def get_base_layer(self) -> nn.Module:
        return self.base_layer


class Peft(nn.Module):
    """A model of PEFT: two tuned layers, and a norm."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        base, outer = nn.Module(), nn.Module()
        base.q, base.v, base.norm = Tuned(**options), Tuned(**options), nn.LayerNorm(3)
        outer.model = base
        self.base_model = outer
        self.peft_config, self.active_adapters = {"one": None, "two": None}, ["one", "two"]

    def get_base_model(self) -> nn.Module:
        return self.base_model.model


def by_hand(layer: Tuned, adapters: list[str]) -> torch.Tensor:
    """As peft's `merge`, adapter after adapter."""
    weight = layer.base_layer.weight.detach()
    for name in adapters:
        a, b = layer.lora_A[name].weight.detach(), layer.lora_B[name].weight.detach()
        delta = b.float() @ a.float()
        delta = (delta.T if layer.fan_in_fan_out else delta) * layer.scaling[name]
        weight = (weight + delta.to(b.dtype)).to(weight.dtype)
    return weight


def made_of(source: wct.Gathered) -> dict[str, torch.Tensor]:
    source.refresh()
    return {name: t.clone() for one in source._planned for name, t in zip(one.product.outputs, one.host, strict=True)}


@pytest.mark.parametrize("options", [{}, {"dtype": torch.bfloat16}, {"turned": True}, {"dtype": torch.float16, "turned": True}])
@pytest.mark.parametrize("active", [["one"], ["two"], ["two", "one"], ["one", "two"]])
def test_active_adapters_are_added_one_after_the_other(options: dict[str, Any], active: list[str]) -> None:
    model = Peft(**options)
    layers = {"q": model.base_model.model.q, "v": model.base_model.model.v}
    for layer in layers.values():
        layer.active_adapters = active
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    source = merged(model)
    assert source.catalog().keys() == {"q.weight", "v.weight", "norm.weight", "norm.bias"}
    for _ in range(2):
        made = made_of(source)
        assert made.keys() == {"q.weight", "v.weight"}
        for name, layer in layers.items():
            assert torch.equal(made[f"{name}.weight"], by_hand(layer, active)), name
        with torch.no_grad():
            layers["q"].lora_B["one"].weight += 1
    with torch.no_grad():
        layers["q"].lora_B["one"].weight.copy_(before["base_model.model.q.lora_B.one.weight"])
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters()), "the model stays as it is"


def test_layers_without_an_active_adapter_are_published_as_they_are() -> None:
    model = Peft()
    base = model.base_model.model
    base.q.disable_adapters, base.v.active_adapters = True, ["of another layer"]
    source = merged(model)
    assert made_of(source) == {} and source.catalog().keys() == {"q.weight", "v.weight", "norm.weight", "norm.bias"}
    assert len(source.layout()) == 4


def test_adapters_that_are_merged_already_are_not_added_again() -> None:
    model = Peft()
    source = merged(model)
    model.base_model.model.v.merged_adapters = ["one"]
    with pytest.raises(wc.StageFailed, match="base_model.model.v: adapters are merged already; unmerge_adapter"):
        source.refresh()
    model.base_model.model.v.merged_adapters = []
    source.refresh()


def no_product(layer: Any) -> None:
    layer.lora_A = nn.ModuleDict({"one": layer.lora_A["one"]})
    layer.adapter_layer_names = ("lora_A", "lora_B")


def no_matrix(layer: Any) -> None:
    layer.base_layer = nn.Conv1d(3, 4, 1)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_product, "v is tuned as Tuned, and not by LoRA of a linear layer, which weightcast does not merge"),
        (no_matrix, "v is no matrix"),
        (lambda layer: layer.lora_variant.update(two="DoRA"), r"v has a variant of LoRA \(such as DoRA\)"),
        (lambda layer: layer.lora_bias.update(two=True), "v has an adapter with a bias"),
    ],
)
def test_what_is_merged_in_another_way_is_refused_with_the_layer(spoil: Any, said: str) -> None:
    model = Peft()
    spoil(model.base_model.model.v)
    with pytest.raises(wc.Misuse, match=f"base_model.model.{said}"):
        merged(model)
    model.base_model.model.v.active_adapters = ["one"]
    if spoil not in (no_matrix,):
        merged(model)  # of adapters that are not active nobody asks
    with pytest.raises(wc.Misuse, match="Linear is no model of PEFT"):
        merged(nn.Linear(2, 2))


def test_layers_are_unmerged_as_long_as_one_active_adapter_is() -> None:
    model = Peft()
    base = model.base_model.model
    assert why_unmerged(model).startswith("adapters of 2 layers (base_model.model.q, ...) are not merged")
    base.q.merged_adapters = ["two", "one"]
    base.v.merged_adapters = ["one"]
    assert why_unmerged(model).startswith("adapters of 1 layers (base_model.model.v, ...) are not merged")
    base.v.active_adapters = ["one"]
    assert why_unmerged(model) is None
    base.v.merged_adapters = ["two", "one"]
    assert why_unmerged(model) is None, "one that is merged and not active is in the weights all the same"
    base.v.merged_adapters = []
    assert why_unmerged(model) is not None
    base.v.disable_adapters = True
    assert why_unmerged(model) is None and adapters_of(base.v) == []
    base.q.active_adapters = ["two", "unknown", "one"]
    assert adapters_of(base.q) == ["two", "one"]
    assert why_unmerged(nn.Linear(2, 2)) is None


def test_a_layout_of_the_model_itself_is_not_published_unmerged(server: Any) -> None:
    model = Peft()
    layout = wct.layout(model)
    assert "adapters of 2 layers" in layout.origins.unready()
    with wc.open("m", wc.Replica("t"), role="trainer", server=server.address) as trainer:
        trainer.register(layout)
        with pytest.raises(wc.Misuse, match="adapters of 2 layers"):
            trainer.publish(1)
        for layer in (model.base_model.model.q, model.base_model.model.v):
            layer.merged_adapters = ["one", "two"]
        trainer.publish(1)
        trainer.unpublish()
    assert wct.layout(model, names=BaseNames(model)).origins.unready() is None, "who gives names knows"


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("base_model.model.a.weight", "a.weight"),
        ("base_model.model.a.base_layer.weight", "a.weight"),
        ("base_model.model.a.lora_A.one.weight", None),
        ("base_model.model.a.lora_embedding_B.one", None),
        ("base_model.model.a.lora_magnitude_vector.one.weight", None),
        ("base_model.model.head.original_module.weight", None),
        ("base_model.model.head.modules_to_save.one.weight", "head.weight"),
        ("base_model.model.head.modules_to_save.one.base_layer.weight", "head.weight"),
        ("base_model.model.head.modules_to_save.asleep.weight", None),
        ("base_model.model._orig_mod.a.base_layer.weight", "a.weight"),
        ("base_model.model.old.weight", "new.weight"),
        ("base_model.model.my_lora_x.weight", "my_lora_x.weight"),
        ("base_model.model.base_model.model.x", "base_model.model.x"),
        ("other.weight", "other.weight"),
    ],
)
@pytest.mark.parametrize("callable_", [False, True])
def test_names_are_those_of_the_base_model(name: str, published: str | None, callable_: bool) -> None:
    active = ["one"]
    model = SimpleNamespace(
        active_adapters=(lambda: active) if callable_ else active, get_base_model=lambda: nn.Linear(1, 1), peft_config={}
    )
    assert is_peft(model) and not is_peft(nn.Linear(1, 1)) and not is_peft(SimpleNamespace(peft_config={}))
    assert BaseNames(model, wc.NameMap({"old.*": "new.*"})).published(name) == published
