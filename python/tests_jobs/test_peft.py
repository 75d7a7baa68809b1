"""Models of PEFT: merged under the base model's names to the bit, adapters alone, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import IA3Config, LoraConfig, get_peft_model
from safetensors.torch import load_file

import weightcast as wc
import weightcast.torch as wct
from tests.conftest import SOON
from tests.jobs import empty_engine, ranks
from tests.test_torch import bits
from weightcast.adapters.catalog import catalog_of
from weightcast.adapters.engine.adapter import BASE, CONFIG, Adapter, carried, memory_for
from weightcast.adapters.peft import merged
from weightcast.adapters.trainers.steps import Steps

from .models import STEPS, build
from .programs import peft_trainer
from .programs.peft_trainer import LORA, learn, tuned


def merged_by_peft(model: Any) -> dict[str, torch.Tensor]:
    """What PEFT makes, by the base model's names; tied weights once."""
    made = copy.deepcopy(model).merge_and_unload()
    return {name: tensor.detach() for name, tensor in made.named_parameters()}


def receive(group: Any, handle: wc.Handle, wanted: dict[str, torch.Tensor], version: int) -> None:
    """What engines get is that."""
    handle.publish(version, seal=True, deadline=SOON)
    (memory,), layouts = empty_engine(wanted, 1, {})
    group(f"rollout-{version}", layouts)[0].update(version, deadline=SOON)
    for name, tensor in wanted.items():
        assert bits(memory[name]) == bits(tensor), name
    handle.unpublish(deadline=SOON)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", [{}, {"modules_to_save": ["lm_head"], "target_modules": ["q_proj"]}])
def test_merged_beside_the_model(group, dtype, given) -> None:
    torch.manual_seed(3)
    base = build().to(dtype)
    if given:
        base.config.tie_word_embeddings = False
        base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone())
    model = get_peft_model(base, LoraConfig(**(LORA | given)), autocast_adapter_dtype=False)
    source = merged(model)
    handle = group("trainer", [source.layout()], role="trainer")[0]
    for version in (1, 2):
        learn(model)
        before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        wanted = merged_by_peft(model)
        assert any(not torch.equal(before[f"base_model.model.{n}".replace("q_proj.", "q_proj.base_layer.")], t) for n, t in wanted.items() if n.endswith("q_proj.weight"))
        assert source.catalog() == catalog_of({name: (t.shape, t.dtype) for name, t in wanted.items()})
        receive(group, handle, wanted, version)
        for name, tensor in model.named_parameters():
            assert torch.equal(tensor, before[name]), f"{name} has drifted"


def test_several_adapters_add_up(group) -> None:
    model = tuned()
    model.add_adapter("second", LoraConfig(r=2, target_modules=["q_proj", "o_proj"]))
    model.base_model.set_adapter(["default", "second"])
    learn(model)
    handle = group("trainer", [merged(model).layout()], role="trainer")[0]
    receive(group, handle, merged_by_peft(model), 1)
    model.base_model.set_adapter("second")
    handle.unregister(deadline=SOON)
    handle.register(merged(model).layout(), deadline=SOON)
    receive(group, handle, merged_by_peft(model), 2)


def test_merged_in_place(group) -> None:
    model = tuned()
    layout = wct.layout(model, expect=catalog_of(build()))
    handle = group("trainer", [layout], role="trainer")[0]
    for version in (1, 2):
        learn(model)
        with pytest.raises(wc.Misuse, match=r"adapters of 6 layers \(base_model.*are not merged.*call merge_adapter"):
            handle.publish(version, deadline=SOON)
        wanted = merged_by_peft(model)
        model.merge_adapter()
        receive(group, handle, wanted, version)
        model.unmerge_adapter()
    with model.disable_adapter():
        receive(group, handle, {n: t.detach() for n, t in build().named_parameters()} | base_of(model), 3)


def test_one_adapter_of_two_is_not_merged(group) -> None:
    model = tuned()
    model.add_adapter("second", LoraConfig(r=2, target_modules=["q_proj"]))
    model.base_model.set_adapter(["default", "second"])
    handle = group("trainer", [wct.layout(model)], role="trainer")[0]
    model.merge_adapter(["default"])
    with pytest.raises(wc.Misuse, match=r"adapters of 2 layers .*are not merged"):
        handle.publish(1, deadline=SOON)
    model.merge_adapter(["second"])
    handle.publish(1, seal=True, deadline=SOON)


def base_of(model: Any) -> dict[str, torch.Tensor]:
    """The base weights as unmerging has left them."""
    names = wct.module.names_of(model, names=None, rename=None, buffers=False)
    return {published[0]: model.get_parameter(name).detach() for name, published in names.items()}


def test_merging_twice_is_told(group) -> None:
    model = tuned()
    handle = group("trainer", [merged(model).layout()], role="trainer")[0]
    model.merge_adapter()
    with pytest.raises(wc.WeightcastError, match="merged already; unmerge_adapter"):
        handle.publish(1, deadline=SOON)
    model.unmerge_adapter()
    receive(group, handle, merged_by_peft(model), 1)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LoraConfig(r=2, target_modules=["q_proj"], use_dora=True), "a variant of LoRA"),
        (LoraConfig(r=2, target_modules=["q_proj"], lora_bias=True), "an adapter with a bias"),
        (LoraConfig(r=2, target_modules=["embed_tokens"]), "not by LoRA of a linear layer"),
        (IA3Config(target_modules=["q_proj"], feedforward_modules=[]), "not by LoRA of a linear layer"),
    ],
)
def test_other_ways_of_tuning_are_refused(config, said) -> None:
    with pytest.raises(wc.Misuse, match=f"{said}.*call merge_adapter"):
        merged(get_peft_model(build(), config))


def test_a_model_without_adapters_is_told() -> None:
    with pytest.raises(wc.Misuse, match="Qwen2ForCausalLM is no model of PEFT"):
        merged(build())


def test_an_adapter_alone_is_what_peft_saves(group, server, tmp_path) -> None:
    model = tuned()
    steps = Steps("lora", of=Adapter, server=server.address)
    steps.begin(model)
    for version in (1, 2):
        steps.before()
        learn(model)
        steps.after(version)
        follow_adapter(group, model_of="lora", version=version, saved=save(model, tmp_path / str(version)))
    steps.end()


def save(model: Any, path: Path) -> Path:
    model.save_pretrained(path)
    return path


def follow_adapter(group: Any, model_of: str, version: int, saved: Path) -> None:
    """An engine gets what PEFT saves, and PEFT reads its configuration."""
    asking = group(f"asking-{version}", [wc.Layout()], model=model_of, register=False)[0]
    asking.wait(lambda held: version in held, deadline=3 * SOON)
    memory = memory_for(asking.catalog(deadline=SOON))
    layout = wc.Layout()
    for name, tensor in memory.items():
        layout.add(tensor, name)
    group(f"done-{version}", [layout], model=model_of)[0].update(version, deadline=SOON)
    wanted = load_file(saved / "adapter_model.safetensors")
    found = carried(memory)
    assert found.tensors.keys() == wanted.keys() and memory.keys() - wanted.keys() == {BASE, CONFIG}
    for name, tensor in wanted.items():
        assert bits(found.tensors[name]) == bits(tensor), name
    assert LoraConfig(**found.config).r == LORA["r"]


def test_shards_of_both(group, server, tmp_path) -> None:
    with ranks(peft_trainer, 2, server.address, str(tmp_path)):
        for version in range(1, STEPS + 1):
            waiting = group(f"waiting-{version}", [wc.Layout()], model="merged", register=False)[0]
            waiting.wait(lambda held, v=version: v in held, deadline=3 * SOON)
            follow_adapter(group, "alone", version, tmp_path / f"alone-{version}")
            wanted = load_file(tmp_path / f"merged-{version}.safetensors")
            (memory,), layouts = empty_engine(wanted, 1, {})
            group(f"done-{version}", layouts, model="merged")[0].update(version, deadline=SOON)
            for name, tensor in wanted.items():
                assert bits(memory[name]) == bits(tensor), (name, version)
