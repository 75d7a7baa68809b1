"""A tiny Qwen2: its checkpoints on disk, and as a trainer holds them."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from ..configs import config
from ..rules import Rules
from ..trainer import checkpoint

#: Sizes for which vLLM has kernels on CPUs.
SIZES = {"hidden_size": 256, "num_attention_heads": 8}

Values = dict[str, torch.Tensor]


class Model:
    """One family, drawn once."""

    def __init__(self, directory: Path, sizes: Mapping[str, Any] = SIZES) -> None:
        """Writes the config of the model into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        #: As Hugging Face writes it.
        self.config = config("qwen2", random.Random("qwen2")) | sizes
        self._catalog = Rules(self.config, directory).catalog()

    def values(self, version: int) -> Values:
        """A checkpoint of small values: layers neither saturate nor vanish."""
        return {
            name: torch.ones_like(t) if name.endswith("norm.weight") else (t * 0.1).to(t.dtype)
            for name, t in checkpoint(self._catalog, version).items()
        }

    def save(self, version: int) -> None:
        """Writes a checkpoint beside the config."""
        save_file(self.values(version), self.directory / "model.safetensors")


class Held(nn.Module):
    """A module with a checkpoint's tensors, under its names."""

    def __init__(self, values: Values) -> None:
        super().__init__()
        for name, value in values.items():
            path, _, own = name.rpartition(".")
            at: nn.Module = self
            for part in path.split("."):
                if not hasattr(at, part):
                    at.add_module(part, nn.Module())
                at = getattr(at, part)
            at.register_parameter(own, nn.Parameter(value.clone(), requires_grad=False))

    def become(self, values: Values) -> None:
        """What an optimizer step would do."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                value = values[name]
                if isinstance(parameter, DTensor):
                    mesh, placements = parameter.device_mesh, parameter.placements
                    value = distribute_tensor(value, mesh, placements, src_data_rank=None)
                parameter.copy_(value)
