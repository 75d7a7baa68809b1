"""One rank of the trainers: PyTorch FSDP2 over a `transformers` Qwen2 model.

Run by `__main__`, one process per rank.
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import Qwen2Config, Qwen2ForCausalLM

import weightcast as wc
import weightcast.torch as wct

from .policy import advantages, answer_logprobs, clipped_loss
from .processes import join_group
from .samples import Samples
from .settings import Settings, Worker


def build_model(settings: Settings) -> Qwen2ForCausalLM:
    """A randomly initialised model, the same on every rank."""
    torch.manual_seed(settings.seed)
    c = settings.model
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            intermediate_size=c.intermediate_size,
            num_hidden_layers=c.num_hidden_layers,
            num_attention_heads=c.num_attention_heads,
            num_key_value_heads=c.num_key_value_heads,
            rms_norm_eps=c.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            tie_word_embeddings=c.tie_word_embeddings,
            initializer_range=0.05,
        )
    )


def shard(model: Qwen2ForCausalLM, ranks: int) -> Qwen2ForCausalLM:
    """Splits the parameters over the ranks, a decoder layer at a time."""
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(worker: Worker, samples: Samples) -> None:
    """The loop: publish, learn from what rollouts sampled, step."""
    settings = worker.settings
    model = shard(build_model(settings), worker.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95))
    me = wct.replica("trainer", model)
    with wc.open("policy", me, role="trainer", epoch="new") as handle:
        handle.register(wct.layout(model))
        for step in range(settings.steps):
            with handle.published(step, deadline=settings.timeout):
                published = time.monotonic()
                seen = learn(model, samples, step, settings)
            unpublished = time.monotonic()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(seen)
            if worker.rank == 0:
                means = (seen / worker.size).tolist()
                samples.report(
                    event="step",
                    step=step,
                    reward=means[0],
                    staleness=means[1],
                    drift=means[2],
                    published=published,
                    unpublished=unpublished,
                )


def learn(model: torch.nn.Module, samples: Samples, step: int, settings: Settings) -> torch.Tensor:
    """Gradients from one batch of samples. Its mean reward, staleness and drift.

    The drift is how far the policy has moved from the one that sampled: the mean difference of
    the log-probabilities. Without staleness it is rounding, or else a rollout has wrong weights.
    """
    oldest = 0 if settings.no_sync else step - settings.max_staleness
    batch = samples.get(min_version=oldest)
    prompts, answers = torch.from_numpy(batch.prompts), torch.from_numpy(batch.answers)
    rewards = settings.task.reward(prompts, answers)
    logprobs = answer_logprobs(model, prompts, answers, settings.temperature)
    behaviour = torch.from_numpy(batch.logprobs)
    advantage = advantages(rewards, settings.answers)
    clipped_loss(logprobs, behaviour, advantage, settings.clip).backward()
    drift = (logprobs.detach() - behaviour).abs().mean()
    return torch.tensor([rewards.mean(), step - batch.version, drift])


def main() -> None:
    """The process of one trainer rank."""
    worker = Worker.from_environment()
    with join_group(worker) as samples:
        train(worker, samples)


if __name__ == "__main__":
    main()
