"""vLLM as a rollout's engine: the library's `LLM` in the rollout's own process.

Nothing of vLLM changes. The layout is read off the model's own loader; bytes land beside parameters that
vLLM has rearranged, and its loader installs them between two calls of `generate`.
"""

import os
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

import weightcast as wc

from ..rl_loop.sampling import Sampled
from .models import config_of
from .settings import TINY, LoopSettings, Post
from .stamp import STAMP

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the model is to be in this process
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
"""What vLLM reads when it is imported; what a user has set stays."""
SEEDS = 1 << 31
"""Requests have seeds below this."""


class VLLM:
    """An engine of vLLM, whose first weights are those of the first version."""

    def __init__(self, post: Post):
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from vllm import LLM

        settings = post.settings
        self.described = TemporaryDirectory(prefix="weightcast-rl-")
        self.llm = LLM(
            model=describe(settings, self.described.name),
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype=settings.dtype,
            max_model_len=max(64, settings.tokens),
            logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
            seed=settings.seed,
            disable_log_stats=True,
        )

    def layout(self, handle: wc.Handle) -> wc.Layout:
        """What the engine's parameters hold of what is published; waits for a first version."""
        from weightcast.adapters import vllm

        models: list[torch.nn.Module] = []
        self.llm.apply_model(models.append)
        published = {name: entry for name, entry in handle.catalog().items() if name != STAMP}
        self.live = vllm.read(models[0], published, vllm_config=self.llm.llm_engine.vllm_config)
        return self.live.layout(stage=True)

    def installed(self) -> None:
        """Has the loader install what has arrived; keys and values of the former version are dropped."""
        self.live.finish()
        self.llm.reset_prefix_cache()

    def answer(self, prompts: Tensor, length: int, temperature: float, draw: torch.Generator) -> Sampled:
        """Answers, each from a seed of its own."""
        from vllm import SamplingParams

        common = {"max_tokens": length, "temperature": temperature, "logprobs": 0}
        common |= {"ignore_eos": True, "detokenize": False}
        seeds = torch.randint(SEEDS, (len(prompts),), generator=draw).tolist()
        how = [SamplingParams(seed=seed, **common) for seed in seeds]
        asked = [{"prompt_token_ids": prompt} for prompt in prompts.tolist()]
        said = [request.outputs[0] for request in self.llm.generate(asked, how, use_tqdm=False)]
        tokens = torch.tensor([list(each.token_ids) for each in said])
        drawn = [zip(each.token_ids, each.logprobs, strict=True) for each in said]
        logprobs = [[at[token].logprob for token, at in each] for each in drawn]
        return Sampled(tokens, torch.tensor(logprobs, dtype=torch.float32))


def describe(settings: LoopSettings, directory: str) -> str:
    """A directory with the model's configuration: that of the checkpoint, or this one. Weights come over
    weightcast."""
    if settings.model not in TINY:
        return settings.model
    config = config_of(settings)
    config.dtype = settings.dtype
    config.save_pretrained(directory)
    return directory
