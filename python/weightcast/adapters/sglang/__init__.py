"""Layouts of live SGLang models, on one rank each.

    live = weightcast.adapters.sglang.read(model, catalog)
    handle.register(live.layout(stage=True))
    if handle.update(deadline=30).changed:
        live.finish()
"""

from .model import read

__all__ = ["read"]
