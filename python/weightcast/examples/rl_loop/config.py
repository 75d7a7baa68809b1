"""The sizes of a Qwen2 model, under the names `transformers` gives them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelConfig:
    """What the engine needs to know of a Qwen2 model; `rope_theta` is the rotary base."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    tie_word_embeddings: bool = True

    @classmethod
    def from_transformers(cls, config: Any) -> "ModelConfig":
        """The sizes of a `transformers.Qwen2Config`. Refuses what the engine doesn't compute."""
        rope = config.rope_parameters
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"rope_type {rope['rope_type']!r} is not supported, only 'default'")
        if "sliding_attention" in config.layer_types:
            raise ValueError("sliding-window attention is not supported")
        heads = config.num_attention_heads
        return cls(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=rope["rope_theta"],
            tie_word_embeddings=config.tie_word_embeddings,
        )

    def check_tensor_parallel(self, size: int) -> None:
        """Raises `ValueError` if the model cannot be split over `size` ranks."""
        kv = self.num_key_value_heads
        for name in ("num_attention_heads", "intermediate_size", "vocab_size"):
            if getattr(self, name) % size:
                have = getattr(self, name)
                raise ValueError(f"{name} {have} is not a multiple of TP size {size}")
        if kv % size and size % kv:
            raise ValueError(f"num_key_value_heads {kv} and TP size {size} must divide one another")
