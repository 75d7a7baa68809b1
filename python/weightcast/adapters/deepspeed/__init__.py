"""DeepSpeed: the live parameters of an engine as layouts, whatever the stage of ZeRO.

    from weightcast.adapters import deepspeed as published

    me = published.replica("trainer", engine)
    with wc.open("policy", me, role="trainer") as handle:
        handle.register(published.layout(engine))

With ZeRO 1 and 2 every rank has all parameters; with ZeRO 3 a rank publishes its pieces of flattened
parameters where they lie.
"""

from .layout import layout
from .where import replica

__all__ = ["layout", "replica"]
