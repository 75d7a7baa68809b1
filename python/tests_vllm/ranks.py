"""An engine's ranks for the conformance kit, whichever engine it is."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from weightcast.adapters.catalog import Catalog
from weightcast.adapters.recording.recorder import DTYPES
from weightcast.testing import Checkpoint


class Ranks:
    """The ranks of one engine, one after the other in this process: `build(rank)` makes a model of
    one, `read(model, catalog)` is the adapter's."""

    def __init__(self, ranks: int, build: Callable[[int], nn.Module], read: Callable) -> None:
        self.ranks = ranks
        self._build, self._read = build, read

    def build(self, rank: int) -> nn.Module:
        model = self._build(rank)
        for parameter in model.parameters():
            parameter.data.fill_(7)
        # An engine that runs has derived its state.
        getattr(model, "post_load_weights", lambda: None)()
        return model

    def read(self, rank: int, model: nn.Module, catalog: Catalog) -> Any:
        return self._read(model, catalog)

    def load(self, rank: int, model: nn.Module, tensors: Any) -> None:
        model.load_weights(tensors)

    def state(self, rank: int, model: nn.Module) -> dict[str, torch.Tensor]:
        return dict(model.named_parameters())


def blank(catalog: Catalog) -> Checkpoint:
    """A checkpoint of these names, shapes and types."""
    return Checkpoint(
        {name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype]) for name, entry in catalog.items()}
    )
