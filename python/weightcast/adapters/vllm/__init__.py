"""vLLM: layouts of its models, and its weight-transfer interface over weightcast.

An engine is started with `--weight-transfer-config '{"backend": "weightcast"}'`; its trainer uses
`WeightcastTrainer`. Without that interface, one tensor- and expert-parallel rank at a time:

    live = weightcast.adapters.vllm.read(model, catalog, vllm_config=vllm_config)
    handle.register(live.layout(stage=True))
    if handle.update(deadline=30).changed:
        live.finish()

`layouts(model, tp=2)` are those of an engine that does not run, for `weightcast.plans`.
"""

from typing import TYPE_CHECKING, Any

from ..engine.adapter import Adapter
from .http import HTTPEngine
from .local import LocalEngine
from .model import layout, read

if TYPE_CHECKING:
    from .describe import layouts
    from .trainer import TrainerInfo, WeightcastTrainer
    from .worker import WeightcastEngine

#: What imports vLLM, and is imported when it is asked for.
_LATER = {"TrainerInfo": "trainer", "WeightcastTrainer": "trainer", "WeightcastEngine": "worker"}

__all__ = [
    "Adapter",
    "HTTPEngine",
    "LocalEngine",
    "TrainerInfo",
    "WeightcastEngine",
    "WeightcastTrainer",
    "layout",
    "layouts",
    "read",
]


def __getattr__(name: str) -> Any:
    if name == "layouts":
        from .describe import layouts  # so that `python -m` may run that module

        return layouts
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from .plugin import register

    register()
    return getattr(import_module(f".{_LATER[name]}", __name__), name)
