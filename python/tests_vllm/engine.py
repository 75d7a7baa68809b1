"""Real vLLM model classes on one rank of a faked tensor- and expert-parallel group.

No engine runs and no other rank exists: a rank's parameters and loaders depend on its rank and the
group's size alone.
"""

import importlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from torch import nn
from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.registry import _VLLM_MODELS

from weightcast.adapters.vllm import ranks
from weightcast.adapters.vllm.ranks import Spread, config_of


def build(config: dict[str, Any], **spread: Any) -> nn.Module:
    """The model of a config on one rank, on the CPU, with whatever values memory has."""
    return build_with_config(config, **spread)[0]


def build_with_config(
    config: dict[str, Any],
    *,
    tp: int,
    rank: int,
    ep: bool = False,
    dp: int = 1,
    placement: str = "linear",
    redundant: int = 0,
    dtype: str = "bfloat16",
    device: str = "cpu",
) -> tuple[nn.Module, VllmConfig]:
    """The same, and vLLM's own config of it."""
    (architecture,) = config["architectures"]
    register(architecture)
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config))
        model = ModelConfig(
            model=directory,
            tokenizer=directory,
            skip_tokenizer_init=True,
            dtype=dtype,
            enforce_eager=True,
            max_model_len=64,
        )
        spread = Spread(tp=tp, dp=dp, ep=ep, placement=placement)
        whole = config_of(model, spread)
        # Set afterwards: vLLM would look for as many devices.
        whole.parallel_config.enable_eplb = redundant > 0
        whole.parallel_config.eplb_config.num_redundant_experts = redundant
        return ranks.build(whole, spread, rank, device=device), whole


def processed(
    config: dict[str, Any], values: Mapping[str, torch.Tensor], dtype: str = "bfloat16"
) -> tuple[nn.Module, VllmConfig]:
    """A model as an engine has it that has loaded these values, and vLLM's config of it."""
    model, whole = build_with_config(config, tp=1, rank=0, dtype=dtype)
    with set_current_vllm_config(whole):
        model.load_weights(values.items())
        process_weights_after_loading(model, whole.model_config, torch.device("cpu"))
    return model, whole


def register(architecture: str) -> None:
    """Makes vLLM know a model class, of classifiers the model that they are made of."""
    if architecture not in _VLLM_MODELS:
        architecture = architecture.replace("SequenceClassification", "CausalLM")
    # A registered class is inspected here; otherwise vLLM starts a process for each.
    if architecture not in _registered:
        module, name = _VLLM_MODELS[architecture]
        module = module if "." in module else f"vllm.model_executor.models.{module}"
        ModelRegistry.register_model(architecture, getattr(importlib.import_module(module), name))
        _registered.add(architecture)


_registered: set[str] = set()


def spread(tp: int, dp: int, rank: int) -> None:
    """One process that says it is `rank` of `dp` times `tp`. EP runs over all of them."""
    ranks.be(Spread(tp=tp, dp=dp), rank)
