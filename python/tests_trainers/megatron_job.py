"""A rank of Megatron-core: trains a small GPT model with Megatron's own schedules, and publishes it."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from megatron.core import parallel_state as mpu
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from torch import nn

import weightcast as wc
from weightcast.adapters import megatron
from weightcast.examples.rl.on_cpu import OnCPU, stand_in

from .engine import BLOCK
from .jobs import Job
from .ranks import SOON, join

SEQUENCE = 8
MICROBATCHES = 2


def configure(job: Job) -> TransformerConfig:
    """The sizes of the model, and how it is spread."""
    chosen = {
        "num_layers": job.layers, "hidden_size": 32, "ffn_hidden_size": 48, "kv_channels": 8,
        "num_attention_heads": 4, "num_query_groups": 2, "gated_linear_unit": True, "add_bias_linear": False,
        "activation_func": torch.nn.functional.silu, "normalization": "RMSNorm",
        "hidden_dropout": 0.0, "attention_dropout": 0.0, **job.config,
    }
    make = MLATransformerConfig if chosen.get("multi_latent_attention") else TransformerConfig
    return make(
        tensor_model_parallel_size=job.tp, pipeline_model_parallel_size=job.pp,
        expert_model_parallel_size=job.ep, expert_tensor_parallel_size=job.etp,
        sequence_parallel=job.tp > 1 and "num_moe_experts" in job.config,  # Megatron trains no experts without
        virtual_pipeline_model_parallel_size=job.chunks if job.chunks > 1 else None, pipeline_dtype=job.dtype, params_dtype=job.dtype, bf16=job.bf16,
        use_cpu_initialization=True, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, gradient_accumulation_fusion=False, apply_rope_fusion=False,
        persist_layer_norm=False, qk_layernorm=job.qk_norm, **chosen,
    )


def norm(_: type, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **more: Any) -> nn.Module:
    """In place of Megatron's wrapper of torch's norms, which leaves sequence parallelism to norms of
    TransformerEngine and Apex."""
    made = nn.RMSNorm(hidden_size, eps)
    made.weight.sequence_parallel = config.sequence_parallel
    return made


def build(job: Job, chunk: int | None = None) -> GPTModel:
    """The model of this rank, or a chunk of it, of Megatron's local spec."""
    config = configure(job)
    if "moe_layer_freq" in job.config:
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    else:
        spec = get_gpt_layer_local_spec(
            num_experts=config.num_moe_experts, qk_layernorm=job.qk_norm, normalization=config.normalization
        )
    return assemble(job, config, spec, chunk)


def assemble(job: Job, config: TransformerConfig, spec: Any, chunk: int | None) -> GPTModel:
    torch.manual_seed(7)
    first, last = chunk in (None, 0), chunk in (None, job.chunks - 1)
    return GPTModel(
        config, spec, vocab_size=job.padded, max_sequence_length=16, position_embedding_type="rope",
        pre_process=first and mpu.is_pipeline_first_stage(), post_process=last and mpu.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=job.tied, vp_stage=chunk,
    )


def optimize(job: Job, models: list[GPTModel]) -> tuple[list[nn.Module], Any]:
    """Megatron's own data parallelism and distributed optimizer over a rank's model: every data-parallel rank
    steps a part of the parameters, which lie in one buffer, and gathers the others."""
    config = DistributedDataParallelConfig(
        use_distributed_optimizer=True, overlap_param_gather=job.late, overlap_grad_reduce=job.late
    )
    wrapped = [Float16Module(model.config, model) if job.bf16 else model for model in models]
    wrapped = [DistributedDataParallel(model.config, config, model) for model in wrapped]
    chosen = OptimizerConfig(
        optimizer="adam", lr=0.05, bf16=job.bf16, params_dtype=job.dtype, use_distributed_optimizer=True, clip_grad=0.0,
        overlap_param_gather=job.late,
    )
    return wrapped, get_megatron_optimizer(chosen, wrapped)


def train(models: list[nn.Module], optimizer: Any, step: int) -> None:
    """A step of training, over Megatron's schedule of the pipeline."""
    draw = torch.Generator().manual_seed(100 * step + mpu.get_data_parallel_rank())
    batches = torch.randint(61, (MICROBATCHES, 1, SEQUENCE + 1), generator=draw)
    each = [iter(batches) for _ in models]

    def forward(data: Any, chunk: nn.Module) -> tuple[torch.Tensor, Callable]:
        tokens = next(data)
        future = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool), 1)
        positions = torch.arange(SEQUENCE)[None]
        loss = chunk(tokens[:, :-1], positions, future, labels=tokens[:, 1:].contiguous())
        return loss, lambda each: (each.float().mean(), {})

    for model in models:
        model.zero_grad_buffer()
    optimizer.zero_grad()
    get_forward_backward_func()(
        forward_step_func=forward, data_iterator=each if len(each) > 1 else each[0], model=models,
        num_microbatches=MICROBATCHES, seq_length=SEQUENCE, micro_batch_size=1, forward_only=False,
    )
    finalize_model_grads(models)
    optimizer.step()


def bare(model: nn.Module) -> GPTModel:
    """The model, without what it is wrapped in."""
    while not isinstance(model, GPTModel):
        model = model.module
    return model


def tensors(models: list[nn.Module]) -> list[dict[str, torch.Tensor]]:
    """What this rank has, under Megatron's own names."""
    return [
        {name: tensor.detach().clone() for name, tensor in bare(model).named_parameters()}
        for model in models
    ]


def where(chunk: int) -> dict[str, int]:
    """Where a chunk is; stages go on from the last one's first chunk with the first one's second."""
    stages = mpu.get_pipeline_model_parallel_world_size()
    return {
        "tp": mpu.get_tensor_model_parallel_rank(), "pp": mpu.get_pipeline_model_parallel_rank() + chunk * stages,
        "ep": mpu.get_expert_model_parallel_rank(), "etp": mpu.get_expert_tensor_parallel_rank(),
    }


def run(say: Callable, hear: Callable, rank: int, job: Job, address: str, rendezvous: str) -> None:
    """Says what it has; then, at each word, publishes, says so, and trains when the test has looked."""
    os.environ["OMP_NUM_THREADS"] = "1"
    stand_in()
    WrappedTorchNorm.__new__ = norm
    get_cuda_rng_tracker().fork = lambda *_: nullcontext()  # nothing is dropped out
    moe_utils.te_general_gemm = None  # megatron-core 0.16.1 forgets to, without TransformerEngine
    join(rank, job.world, rendezvous)
    with OnCPU():
        mpu.initialize_model_parallel(
            job.tp, job.pp, job.chunks if job.chunks > 1 else None, expert_model_parallel_size=job.ep,
            expert_tensor_parallel_size=job.etp,
        )
        models = [build(job, chunk if job.chunks > 1 else None) for chunk in range(job.chunks)]
        models, optimizer = optimize(job, models)
        publish(say, hear, models, optimizer, job, address)


def publish(
    say: Callable, hear: Callable, models: list[nn.Module], optimizer: Any, job: Job, address: str
) -> None:
    """The training loop, as a user has it. All ranks together must have the checkpoint that the test says."""
    me = megatron.replica("trainer", models)
    say(([where(chunk) for chunk in range(job.chunks)], me, tensors(models)))
    layout = megatron.layout(models, expect=hear(), synced=job.late)
    if job.fp8:
        layout.quantise("*_proj.weight", block=BLOCK)
    with wc.open("policy", me, role="trainer", server=address, deadline=SOON) as handle:
        handle.register(layout, deadline=SOON)
        while (step := hear()) is not None:
            train(models, optimizer, step)
            if job.late:
                for model in models:
                    model.start_param_sync(force_sync=True)
            handle.publish(step, deadline=SOON)
            say(tensors(models))
            hear()
            handle.unpublish(deadline=SOON)
    say(None)
