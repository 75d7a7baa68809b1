"""A place where a test may hold an engine while some of its parameters are of the new version and the others are not."""

import sys
from typing import Any

from tests_vllm.live import stops


def place() -> None:
    """Puts the place `within-install` where bytes that lie beside parameters are copied into them."""
    sys.meta_path.insert(0, stops.Finder("weightcast.adapters.live.beside", _put))


def _put(module: Any) -> None:
    install = module.Beside.install

    def half(self: Any) -> None:
        pairs = self._copies._pairs
        for tensor, copy in pairs[: len(pairs) // 2]:
            tensor.copy_(copy)
        stops.pass_by("within-install")
        install(self)

    module.Beside.install = half
