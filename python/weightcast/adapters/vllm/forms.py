"""The forms that vLLM's weight-transfer interface has had, and what ours makes of each.

| vLLM | engines of workers | who prepares and finishes | trainers |
|---|---|---|---|
| to 0.21 | ours is refused: its name is none of vLLM's own | | |
| 0.22 to 0.24 | `(config, parallel_config, model)` | the worker: see `EARLY` | statics of its class |
| 0.25 | `(config, vllm_config, device, model)` | the engine | the same |
| 0.26 | the same | the same | a class; a configuration comes before its `init_info` |
| from 0.27 | the same | the same | a class |

One class of ours serves each side in all of them: `worker.WeightcastEngine`, `trainer.WeightcastTrainer`.
Where vLLM has no class for trainers (up to 0.25), `WeightcastTrainer` stands by itself; the statics are
methods of `WeightcastEngine`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vllm.distributed.weight_transfer import base


@dataclass
class _TrainerInitInfo:
    """vLLM's, for those that have none (up to 0.25)."""

    rank: int = field(kw_only=True)

    @property
    def is_sender(self) -> bool:
        return self.rank == 0


TrainerInitInfo: Any = getattr(base, "TrainerInitInfo", _TrainerInitInfo)
TrainerWeightTransferEngine: Any = getattr(base, "TrainerWeightTransferEngine", object)


def is_early() -> bool:
    """Whether vLLM's workers hand their engines a loader to give the weights to (up to 0.24)."""
    received = inspect.signature(base.WeightTransferEngine.receive_weights).parameters
    return "load_weights" in received


def made_of(worker: Any) -> tuple[Any, ...]:
    """What a worker that was started without the interface makes its engine of."""
    model, described = worker.model_runner.model, worker.vllm_config
    if is_early():
        return None, described.parallel_config, model
    return None, described, worker.device, model


def call_of(step: str, worker: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """What takes a step of an update on a worker: vLLM's own method, or what stands in its place."""
    return partial(EARLY[step], worker, call) if is_early() else call


def _begin(worker: Any, call: Callable[..., Any], **_: Any) -> None:
    # For checkpoints (its default) vLLM would take the model's parameters away, for its own loader.
    call(is_checkpoint_format=False)
    worker.weight_transfer_engine.start_weight_update()


def _fetch(worker: Any, call: Callable[..., Any], update_info: dict[str, Any]) -> None:
    if not worker._weight_update_active:
        call(update_info)  # raises, and says what is missing
    # Not through vLLM's method: there, tensors are made on the worker's device, whoever makes them.
    worker.weight_transfer_engine.update_weights(update_info)


def _finish(worker: Any, call: Callable[..., Any]) -> None:
    from vllm.config import set_current_vllm_config

    if worker._weight_update_active:
        with set_current_vllm_config(worker.vllm_config):
            worker.weight_transfer_engine.finish_weight_update()
    call()


#: By step: what is done in the place of the methods of vLLM's workers that leave nothing but the transfer to
#: their engine. Their note that an update is under way stays theirs.
EARLY: dict[str, Callable[..., Any]] = {"begin": _begin, "fetch": _fetch, "finish": _finish}
