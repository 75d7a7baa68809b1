"""A conformance kit for adapters: whatever is published in whatever pieces, the engine must hold
what its own loader would have made of it.

    from weightcast.testing import Checkpoint, conform

    def test_my_adapter():
        conform(MyEngine(), Checkpoint(tensors), seed=1)

`fp8` has the reference that quantised versions are compared with.

`MyEngine` is an `Engine`: how to build a rank of it, read its layout, load it the engine's own way.
"""

from . import fp8
from .conformance import Checkpoint, Engine, Nonconformity, conform

__all__ = ["Checkpoint", "Engine", "Nonconformity", "conform", "fp8"]
