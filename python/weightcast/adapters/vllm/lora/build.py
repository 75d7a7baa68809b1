"""vLLM's own form of an adapter that has arrived, and whether the adapter fits this engine."""

from collections.abc import Iterable
from typing import Any

from .... import _core
from ...engine.adapter import Carried


def lora_model(manager: Any, number: int, adapter: Carried) -> Any:
    """What vLLM's worker would make of the adapter's directory, from memory. `manager` is the worker's
    LoRA manager, `number` vLLM's number of the adapter."""
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    adapters = manager._adapter_manager
    _refuse_experts(adapter.tensors)
    known = {**adapter.config, "vllm_max_position_embeddings": manager.max_position_embeddings}
    helper = PEFTHelper.from_dict(known)
    helper.validate_legal(manager.lora_config)
    mapper = getattr(adapters.model, "hf_to_vllm_mapper", None)
    made = LoRAModel.from_lora_tensors(
        lora_model_id=number,
        # vLLM scales them in place.
        tensors={name: tensor.clone() for name, tensor in adapter.tensors.items()},
        peft_helper=helper,
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        model_vocab_size=manager.vocab_size,
        weights_mapper=None if mapper is None else mapper.get_rename_mapper(),
        skip_prefixes=getattr(adapters.model, "lora_skip_prefixes", None),
    )
    _check_modules(adapters, made)
    adapters._validate_moe_lora_format(made)
    adapters._validate_modules_to_save(made)
    adapters._validate_token_classification_lora(made)
    return made


def base_alone(manager: Any, number: int) -> Any:
    """An adapter that changes nothing: the one, all zeros, with which vLLM warms up."""
    rank = manager.get_dummy_lora_warmup_rank(1)
    return manager._adapter_manager.create_dummy_lora(number, rank, manager.embedding_modules)


def _refuse_experts(names: Iterable[str]) -> None:
    experts = [name for name in names if ".experts." in name]
    if experts:
        raise _core.LayoutMismatch(
            f"{min(experts)} belongs to experts, and weightcast does not check yet whether an engine has a "
            "place for adapters of those; leave experts out of the adapter's target_modules"
        )


def _check_modules(adapters: Any, made: Any) -> None:
    """vLLM leaves out, without a word, what fits none of its modules."""
    packed = [part for parts in adapters.packed_modules.values() for part in parts]
    known = {*adapters.modules, *packed}
    left = [name for name in made.loras if name not in known]
    if left:
        raise _core.LayoutMismatch(
            f"the engine has no place for {len(left)} of the adapter's {len(made.loras)} modules, "
            f"{min(left)} for one; was the adapter trained on another model, or is it kept out by "
            "--lora-target-modules?"
        )
    for name, lora in made.loras.items():
        if lora.lora_a is None or lora.lora_b is None:
            raise _core.LayoutMismatch(f"{name}: the adapter has one of lora_A and lora_B without the other")
