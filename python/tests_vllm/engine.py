"""Real vLLM model classes on one rank of a faked tensor- and expert-parallel group.

No engine runs and no other rank exists: a rank's parameters and loaders depend on its rank and the
group's size alone.
"""

import copy
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
from vllm.config import DeviceConfig, ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.registry import _VLLM_MODELS


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
        parallel = ParallelConfig(enable_expert_parallel=ep, expert_placement_strategy=placement)
        whole = VllmConfig(
            model_config=model, parallel_config=parallel, device_config=DeviceConfig("cpu")
        )
        with set_current_vllm_config(whole):
            _initialised()
        # Set afterwards: vLLM would look for as many devices, and for GPUs.
        parallel = whole.parallel_config
        parallel.tensor_parallel_size, parallel.data_parallel_size = tp, dp
        parallel.enable_eplb = redundant > 0
        parallel.eplb_config.num_redundant_experts = redundant
        spread(tp, dp, rank)
        before = torch.get_default_dtype()
        torch.set_default_dtype(model.dtype)
        try:
            with torch.device(device):
                return initialize_model(whole), whole
        finally:
            torch.set_default_dtype(before)
            whole.compilation_config.static_forward_context.clear()


def processed(
    config: dict[str, Any], values: Mapping[str, torch.Tensor]
) -> tuple[nn.Module, VllmConfig]:
    """A model as an engine has it that has loaded these values, and vLLM's config of it."""
    model, whole = build_with_config(config, tp=1, rank=0)
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


def _initialised() -> None:
    """Groups of this one process."""
    if parallel_state.model_parallel_is_initialized():
        return
    parallel_state.init_distributed_environment(
        world_size=1,
        rank=0,
        local_rank=0,
        backend="gloo",
        distributed_init_method=f"file://{tempfile.mktemp()}",
    )
    parallel_state.initialize_model_parallel()
    parallel_state._EP = parallel_state._EP or copy.copy(parallel_state._TP)


def spread(tp: int, dp: int, rank: int) -> None:
    """One process that says it is `rank` of `dp` times `tp`. EP runs over all of them."""
    groups = {"_TP": (tp, rank % tp), "_DP": (dp, rank // tp), "_EP": (tp * dp, rank)}
    for name, (size, index) in groups.items():
        group = getattr(parallel_state, name)
        group.world_size, group.rank_in_group = size, index
