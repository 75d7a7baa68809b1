"""Which models are trained, without what trains them."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Job:
    """A model, and how it is spread. `vocab` is that of the checkpoint, `padded` Megatron's."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    world: int = 1
    #: Chunks of each pipeline stage.
    chunks: int = 1
    vocab: int = 61
    padded: int = 64
    layers: int = 4
    #: Layers of each pipeline stage, where they are not as many.
    stages: tuple[int, ...] = ()
    tied: bool = False
    qk_norm: bool = False
    bf16: bool = False
    #: Whether projections are published in FP8.
    fp8: bool = False
    #: Whether a step's parameters are gathered when the next forward pass begins.
    late: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.bf16 else torch.float32
