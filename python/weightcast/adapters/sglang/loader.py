"""The custom weight loader: the worker's side of updates of an SGLang engine.

Started with `--custom-weight-loader weightcast.adapters.sglang.load`, SGLang calls `load` in the scheduler
of every tensor-parallel rank, for each `/update_weights_from_tensor` that names it.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ... import _core
from .report import Report, gathered, watch_updates
from .watching import watch_generation
from .worker import ModelWorker

log = logging.getLogger("weightcast")

#: The worker of each model of this process, by the model's identity: workers keep their models alive.
_workers: dict[int, ModelWorker] = {}


def load(model: nn.Module, named_tensors: list[tuple[str, torch.Tensor]]) -> None:
    """Does what the one name of `named_tensors` asks: see `request`. All ranks call it.

    Never raises, since SGLang ends an engine whose loader raises: how it went is in the report, which
    `watch_updates` makes the answer of SGLang's request.
    """
    watch_updates()
    watch_generation(serves)
    worker = _workers.setdefault(id(model), ModelWorker(model))
    error = said = None
    try:
        said = _do(worker, **json.loads(named_tensors[0][0]))
    except Exception as raised:
        log.warning("%s", raised, exc_info=True)
        error = f"{type(raised).__name__}: {raised}"
    gathered(Report(error, worker.state(), worker.serves(), said))


def serves() -> bool:
    """Whether the engine of this process may generate."""
    return all(worker.serves() for worker in _workers.values())


def _do(worker: ModelWorker, do: str, **named: Any) -> Any:
    if do not in _CALLS:
        raise _core.Misuse(f"{do!r} is not known to the weightcast of this engine; versions differ")
    return _CALLS[do](worker, **named)


def _join(worker: ModelWorker, settings: dict[str, Any], instance: str, life: int) -> None:
    try:
        worker.join(settings, instance, life)
    finally:
        worker.agree(life + 1)


def _nothing(worker: ModelWorker) -> None:
    """The report is all that was asked for."""


_CALLS: dict[str, Callable[..., Any]] = {
    "watch": _nothing,
    "state": _nothing,
    "join": _join,
    "begin": ModelWorker.begin,
    "fetch": ModelWorker.fetch,
    "install": ModelWorker.install,
    "order": ModelWorker.order,
    "performed": ModelWorker.performed,
    "release": ModelWorker.release,
    "leave": ModelWorker.leave,
}
