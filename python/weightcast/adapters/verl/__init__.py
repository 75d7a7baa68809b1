"""verl: a checkpoint engine whose weights go through weightcast.

    actor_rollout_ref.rollout.checkpoint_engine.backend=weightcast
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=weightcast.adapters.verl

verl imports this module in its manager and in its workers, which registers the backend.
"""

from .engine import WeightcastCheckpointEngine

__all__ = ["WeightcastCheckpointEngine"]
