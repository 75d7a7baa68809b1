"""A rank of DeepSpeed: trains a small transformers model with a stage of ZeRO, and publishes it."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Before DeepSpeed is imported: no GPU is looked for.
os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import weightcast as wc
from weightcast.adapters import deepspeed as published

from .engine import BLOCK
from .ranks import SOON, join

SEQUENCE = 8
SIZES = {
    "vocab_size": 61, "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "attn_implementation": "eager",
}


@dataclass(frozen=True)
class ZeroJob:
    """A stage of ZeRO on so many ranks, with what else `zero_optimization` says."""

    stage: int
    world: int = 2
    experts: bool = False
    tied: bool = False
    #: Whether projections are published in FP8.
    fp8: bool = False
    zero: dict[str, Any] = field(default_factory=dict)


def build(job: ZeroJob) -> nn.Module:
    torch.manual_seed(3)
    sizes = SIZES | {"tie_word_embeddings": job.tied}
    if not job.experts:
        return Qwen2ForCausalLM(Qwen2Config(**sizes))
    more = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "experts_implementation": "eager"}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **more))


def start(job: ZeroJob) -> Any:
    """DeepSpeed's engine."""
    config = {
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "torch_adam": True}},
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": job.stage, "stage3_param_persistence_threshold": 30, **job.zero},
    }
    return deepspeed.initialize(model=build(job), config=config)[0]


def train(engine: Any, step: int) -> None:
    draw = torch.Generator().manual_seed(100 * step + dist.get_rank())
    tokens = torch.randint(61, (1, SEQUENCE), generator=draw)
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()


def gathered(engine: Any) -> dict[str, torch.Tensor]:
    """All parameters, as DeepSpeed itself gathers them, and buffers that belong to a checkpoint."""
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return {name: tensor.detach().clone() for name, tensor in engine.module.named_parameters()}


def run(say: Callable, hear: Callable, rank: int, job: ZeroJob, address: str, rendezvous: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job.world))
    # A faster way than gloo, which takes minutes to compile.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    join(rank, job.world, rendezvous)
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    engine = start(job)
    me = published.replica("trainer", engine)
    with wc.open("policy", me, role="trainer", server=address, deadline=SOON) as handle:
        layout = published.layout(engine)
        if job.fp8:
            layout.quantise("*_proj.weight", block=BLOCK)
        handle.register(layout, deadline=SOON)
        say((me, gathered(engine)))
        while (step := hear()) is not None:
            train(engine, step)
            handle.publish(step, deadline=SOON)
            say(gathered(engine))
            hear()
            handle.unpublish(deadline=SOON)
    say(None)
