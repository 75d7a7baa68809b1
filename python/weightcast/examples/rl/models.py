"""The models: Qwen2 and GPT-2 of `transformers`, tiny and random or from a checkpoint's directory."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from .settings import TINY, LoopSettings

CLASSES = {"qwen2": Qwen2ForCausalLM, "gpt2": GPT2LMHeadModel}
"""The class of each architecture that trainers and engines know."""


def config_of(settings: LoopSettings) -> Any:
    """The configuration, without weights. Raises `ValueError` for another architecture."""
    if settings.model in TINY:
        return tiny(settings)
    config = AutoConfig.from_pretrained(settings.model, local_files_only=True)
    if config.model_type not in CLASSES:
        known = " and ".join(CLASSES)
        raise ValueError(f"{settings.model} is a {config.model_type}; the loop knows {known}")
    return config


def tiny(settings: LoopSettings) -> Any:
    """A model that learns the task within a minute or two on two CPU cores."""
    s = settings
    common = {"initializer_range": 0.05, "bos_token_id": None, "eos_token_id": None}
    if s.model == "gpt2":
        return GPT2Config(
            architectures=["GPT2LMHeadModel"],
            vocab_size=s.vocab,
            n_positions=max(64, s.tokens),
            n_embd=s.hidden,
            n_layer=s.layers,
            n_head=s.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **common,
        )
    return Qwen2Config(
        architectures=["Qwen2ForCausalLM"],
        vocab_size=s.vocab,
        hidden_size=s.hidden,
        intermediate_size=4 * s.hidden,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.heads // 2,
        max_position_embeddings=max(64, s.tokens),
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        **common,
    )


def build(settings: LoopSettings) -> Any:
    """The policy that training begins with, the same on every rank, without dropout."""
    torch.manual_seed(settings.seed)
    dtype = getattr(torch, settings.train_dtype)
    if settings.model not in TINY:
        config_of(settings)  # refuses what engines do not know
        model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=dtype, local_files_only=True)
    else:
        config = config_of(settings)
        model = CLASSES[config.model_type](config).to(dtype)
    return model.eval()


class Outputs(NamedTuple):
    """What a model says of each token `[rows, tokens]`: the logits of the next, and what it is worth."""

    logits: Tensor
    values: Tensor | None


class ActorCritic(nn.Module):
    """A policy, and for PPO a head on its last hidden state that values what is written so far.

    The head stays with the trainers: engines get the `policy`.
    """

    def __init__(self, policy: Any, valued: bool):
        super().__init__()
        self.policy = policy
        self.value_head = value_head(policy.config.hidden_size, policy.dtype) if valued else None

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder's layers."""
        base = self.policy.base_model
        found: nn.ModuleList = base.h if hasattr(base, "h") else base.layers
        return found

    def forward(self, tokens: Tensor) -> Outputs:
        """Of tokens `[rows, tokens]`."""
        hidden = self.policy.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        logits = self.policy.get_output_embeddings()(hidden)
        return Outputs(logits, None if self.value_head is None else self.value_head(hidden).squeeze(-1))


def value_head(width: int, dtype: torch.dtype) -> nn.Linear:
    """A head that values everything at zero until it has learnt."""
    head = nn.Linear(width, 1, dtype=dtype)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
