"""A tiny model with LoRA adapters of peft: as a trainer holds them, and as directories that vLLM loads."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from .weights import Model

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK = 8


def peft_model(model: Model, base: int = 1) -> PeftModel:
    """The model with checkpoint `base`, and an adapter."""
    made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model.directory))
    made.load_state_dict({n: t.float() for n, t in model.values(base).items()}, strict=False)
    return get_peft_model(made, LoraConfig(r=RANK, lora_alpha=3 * RANK, target_modules=TARGETS))


def become(model: PeftModel, version: int) -> None:
    """What training would do: all of the adapter changes, enough to be heard."""
    drawn = torch.Generator().manual_seed(version)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=drawn) * 0.1)


def saved(model: PeftModel, version: int, directory: Path) -> Path:
    """The directory of an adapter's version."""
    become(model, version)
    model.save_pretrained(directory)
    assert json.loads((directory / "adapter_config.json").read_text())["r"] == RANK
    return directory
