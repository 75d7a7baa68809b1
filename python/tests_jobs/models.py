"""A small model, and how engines cut it."""

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

STEPS = 2
DEADLINE = 60.0

#: Along which dimension an engine of tensor parallelism cuts, by the end of a name.
CUTS = {
    "q_proj.weight": 0, "k_proj.weight": 0, "v_proj.weight": 0, "q_proj.bias": 0, "k_proj.bias": 0, "v_proj.bias": 0,
    "gate_proj.weight": 0, "up_proj.weight": 0, "o_proj.weight": 1, "down_proj.weight": 1, "embed_tokens.weight": 0,
}  # fmt: skip


def build(seed: int = 0) -> Qwen2ForCausalLM:
    """Of a size that no test waits for."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=50, tie_word_embeddings=True, max_position_embeddings=32,
        )
    )  # fmt: skip


def batch(seed: int) -> dict[str, torch.Tensor]:
    """Some tokens to learn."""
    tokens = torch.randint(0, 50, (2, 8), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": tokens, "labels": tokens}


def cuts(names: Any) -> dict[str, int]:
    """Where an engine of tensor parallelism cuts tensors of these names."""
    return {name: dim for name in names for end, dim in CUTS.items() if name.endswith(end)}


def file_of(directory: str | Path, job: str, version: int) -> Path:
    """Where a trainer writes what engines are to have."""
    return Path(directory) / f"{job}-{version}.pt"


def save(model: torch.nn.Module, directory: str, job: str, version: int, rank: int) -> None:
    """Writes what a trainer has, gathered by torch itself, under the names of a checkpoint."""
    full = {}
    for name, tensor in model.named_parameters():
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        full[name.removeprefix("module.")] = whole.detach().cpu().clone()
    if rank == 0:
        path = file_of(directory, job, version)
        torch.save(full, path.with_suffix(".writing"))
        path.with_suffix(".writing").rename(path)
