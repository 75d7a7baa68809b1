"""SGLang: layouts of its models, and its updates of weights over weightcast.

An engine is started with `--custom-weight-loader weightcast.adapters.sglang.load`; its trainer uses
`SGLangTrainer` and `SGLangEngine`. Without these, one rank at a time:

    live = weightcast.adapters.sglang.read(model, catalog)
    handle.register(live.layout(stage=True))
    if handle.update(deadline=30).changed:
        live.finish()

`layouts(model, tp=2)` are those of an engine that does not run, for `weightcast.plans`.
"""

from typing import TYPE_CHECKING, Any

from .http import SGLangEngine
from .model import read
from .trainer import SGLangTrainer, TrainerInfo

if TYPE_CHECKING:
    from .describe import layouts
    from .loader import load

__all__ = ["SGLangEngine", "SGLangTrainer", "TrainerInfo", "layouts", "load", "read"]


def __getattr__(name: str) -> Any:
    if name == "layouts":
        from .describe import layouts  # so that `python -m` may run that module

        return layouts
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .loader import load  # imports SGLang, which a trainer need not have

    return load
