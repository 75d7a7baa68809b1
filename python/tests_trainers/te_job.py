"""A rank of Megatron-core with its TransformerEngine spec, over a stand-in for TransformerEngine: nothing is
trained, and every step has values of its own."""

from . import te_stand_in

te_stand_in.install()

from collections.abc import Callable  # noqa: E402

import torch  # noqa: E402
from megatron.core import parallel_state as mpu  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec  # noqa: E402

from . import megatron_job  # noqa: E402
from .jobs import Job  # noqa: E402


def build(job: Job, chunk: int | None) -> GPTModel:
    """The model of this rank: grouped experts, norms in the projections after them."""
    config = megatron_job.configure(job)
    spec = get_gpt_layer_with_transformer_engine_spec(
        num_experts=config.num_moe_experts, moe_grouped_gemm=config.num_moe_experts is not None,
        qk_layernorm=job.qk_norm, multi_latent_attention=config.multi_latent_attention,
    )
    return megatron_job.assemble(job, config, spec, chunk)


def change(models: list[GPTModel], optimizer: object, step: int) -> None:
    """New values in place: the same for all ranks that have a parameter alike."""
    for at, (name, parameter) in enumerate(models[0].named_parameters()):
        place = 0
        if ".experts." in name:
            place = 1 + mpu.get_expert_tensor_parallel_rank() + 10 * mpu.get_expert_model_parallel_rank()
        elif getattr(parameter, "tensor_model_parallel", False):
            place = 1 + mpu.get_tensor_model_parallel_rank()
        stage = mpu.get_pipeline_model_parallel_rank()
        draw = torch.Generator().manual_seed(100_000 * step + 100 * at + place + 10_000 * stage)
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))


def run(say: Callable, hear: Callable, rank: int, job: Job, address: str, rendezvous: str) -> None:
    megatron_job.build, megatron_job.train = build, change
    megatron_job.optimize = lambda job, models: (models, None)
    megatron_job.run(say, hear, rank, job, address, rendezvous)

