"""Trainers of Megatron-core: tensor parallelism, data parallelism, the distributed optimizer.

Qwen2's architecture alone: GPT-2's matrices lie transposed in checkpoints, and weightcast moves bytes
as they lie. The first weights are the same as with the other trainers: rank 0 publishes the model of
`transformers` that they begin with, and every rank takes its part of that.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

import weightcast as wc
import weightcast.torch as wct
from weightcast.adapters import megatron

from ..rl_loop.backlog import Batch
from .ddp import GRADIENT
from .lessons import Objective
from .models import Outputs, build, config_of, value_head
from .on_cpu import OnCPU, stand_in
from .settings import LoopSettings
from .stamp import Piece

VALUE_HEAD = wc.NameMap({"value_head.*": None})
"""What no engine has."""
FIRST = "policy-first"
"""The model's name under which the ranks get their first weights."""


class Megatron:
    """A rank of Megatron-core, without pipeline stages."""

    def __init__(self, settings: LoopSettings):
        if not torch.cuda.is_available():
            stay_on_cpu()
        mpu.initialize_model_parallel(settings.trainer_tp)
        self.group: dist.ProcessGroup | None = mpu.get_tensor_model_parallel_group()
        self.leads = mpu.get_tensor_model_parallel_rank() == 0
        described = config_of(settings)
        self.vocab = described.vocab_size
        self.model = gpt(described, settings)
        if settings.algorithm == "ppo":
            self.model.value_head = value_head(described.hidden_size, self.model.config.params_dtype)
        self.hidden: list[Tensor] = []
        self.model.decoder.register_forward_hook(lambda _, __, said: self.hidden.append(said))
        bf16 = settings.train_dtype == "bfloat16"
        whole = Float16Module(self.model.config, self.model) if bf16 else self.model
        fill(whole, self.vocab, settings)
        spread = DistributedDataParallelConfig(use_distributed_optimizer=True)
        self.ranks = DistributedDataParallel(self.model.config, spread, whole)
        how = OptimizerConfig(
            optimizer="adam",
            lr=settings.learning_rate,
            adam_beta1=0.9,
            adam_beta2=0.95,
            weight_decay=0.0,
            clip_grad=GRADIENT,
            bf16=bf16,
            params_dtype=self.model.config.params_dtype,
            use_distributed_optimizer=True,
        )
        self.optimizer = get_megatron_optimizer(how, [self.ranks])

    def replica(self) -> wc.Replica:
        """A shard of `trainer-0`, `trainer-1` and so on: as many copies as are data-parallel."""
        return megatron.replica("trainer", self.ranks)

    def layout(self, beside: bool) -> wc.Layout:
        """What this rank holds of the policy, in place, under the checkpoint's names."""
        return megatron.layout(self.ranks, vocab_size=self.vocab, names=VALUE_HEAD, beside=beside)

    def pieces(self) -> list[Piece]:
        """All parameters as the ranks have cut them; what they have alike is the first one's."""
        rank, found = mpu.get_tensor_model_parallel_rank(), []
        for name, parameter in self.model.named_parameters():
            cut = getattr(parameter, "tensor_model_parallel", False)
            if not name.startswith("value_head") and (cut or rank == 0):
                found.append(Piece(f"{name}/{rank}", parameter))
        return found

    def receive(self, get: Callable[[], Batch]) -> Batch:
        """Ranks of one tensor-parallel group learn from one batch."""
        batch: list[Any] = [get() if self.leads else None]
        source = mpu.get_tensor_model_parallel_src_rank()
        dist.broadcast_object_list(batch, src=source, group=self.group)
        received: Batch = batch[0]
        return received

    @torch.no_grad()
    def look(self, tokens: Tensor) -> Outputs:
        """What the model says of tokens, to learn nothing from."""
        return self._say(tokens)

    def descend(self, tokens: Tensor, objective: Objective) -> None:
        """Gradients of a loss, averaged over the data-parallel ranks."""
        self.ranks.zero_grad_buffer()
        self.optimizer.zero_grad()
        objective(self._say(tokens)).backward()
        finalize_model_grads([self.ranks])

    def step(self) -> None:
        """A step of the distributed optimizer: each rank steps its part and gathers the others'."""
        self.optimizer.step()

    def _say(self, tokens: Tensor) -> Outputs:
        length = tokens.shape[1]
        future = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
        self.hidden.clear()
        logits = self.ranks(tokens, torch.arange(length)[None], future)[..., : self.vocab]
        if not hasattr(self.model, "value_head"):
            return Outputs(logits, None)
        (hidden,) = self.hidden  # [tokens, rows, width]
        return Outputs(logits, self.model.value_head(hidden).squeeze(-1).transpose(0, 1))


def stay_on_cpu() -> None:
    """Has Megatron, which asks for a GPU wherever it makes a tensor, train on the CPU."""
    stand_in()
    get_cuda_rng_tracker().fork = lambda *_: nullcontext()  # nothing is dropped out
    OnCPU().__enter__()  # for the rest of this process


def gpt(described: Any, settings: LoopSettings) -> GPTModel:
    """A Qwen2 model of Megatron's own modules, of the sizes of a `transformers.Qwen2Config`."""
    heads = described.num_attention_heads
    dtype = getattr(torch, settings.train_dtype)
    config = TransformerConfig(
        num_layers=described.num_hidden_layers,
        hidden_size=described.hidden_size,
        ffn_hidden_size=described.intermediate_size,
        num_attention_heads=heads,
        num_query_groups=described.num_key_value_heads,
        kv_channels=getattr(described, "head_dim", None) or described.hidden_size // heads,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        layernorm_epsilon=described.rms_norm_eps,
        add_bias_linear=False,
        add_qkv_bias=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=settings.trainer_tp,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        use_cpu_initialization=True,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
    )
    size = settings.trainer_tp
    return GPTModel(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=-(-described.vocab_size // size) * size,
        max_sequence_length=max(64, settings.tokens),
        position_embedding_type="rope",
        rotary_base=described.rope_parameters["rope_theta"],
        share_embeddings_and_output_weights=described.tie_word_embeddings,
        parallel_output=False,
    )


def fill(model: Any, vocab: int, settings: LoopSettings) -> None:
    """Puts the policy that training begins with into the ranks' shards, by way of weightcast."""
    layout = megatron.layout(model, vocab_size=vocab, names=VALUE_HEAD)
    wait = settings.timeout
    first: AbstractContextManager[wc.Handle | None] = nullcontext()
    if dist.get_rank() == 0:
        first = wc.open(FIRST, wc.Replica("first"), role="trainer", epoch="new", deadline=wait)
    with first as publisher, wc.open(FIRST, megatron.replica("rank", model), deadline=wait) as handle:
        handle.register(layout, deadline=wait)
        if publisher is not None:
            publisher.register(wct.layout(build(settings), buffers=False), deadline=wait)
            publisher.publish(0, deadline=wait)
        handle.update(deadline=wait)
        dist.barrier()  # nobody reads any more
