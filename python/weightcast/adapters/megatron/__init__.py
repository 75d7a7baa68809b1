"""Megatron-core: live GPT models as layouts, under the names of the published checkpoint.

    from weightcast.adapters import megatron

    me = megatron.replica("trainer", model)
    with wc.open("policy", me, role="trainer") as handle:
        handle.register(megatron.layout(model, vocab_size=hf_config.vocab_size))

`model` is what Megatron's `get_model` returns: a GPT model, wrapped or not, or a list of them. What a rank
holds is read from `sharded_state_dict`, by which Megatron itself writes checkpoints; parameters are published
where they lie.
"""

from .layout import layout
from .names import MIXTRAL
from .where import replica

__all__ = ["MIXTRAL", "layout", "replica"]
