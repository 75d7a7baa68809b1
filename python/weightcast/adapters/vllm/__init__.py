"""Layouts of live vLLM models, on one tensor- and expert-parallel rank each.

    live = weightcast.adapters.vllm.read(model, catalog, vllm_config=vllm_config)
    handle.register(live.layout(stage=True))
    if handle.update(deadline=30).changed:
        live.finish()
"""

from .model import layout, read

__all__ = ["layout", "read"]
