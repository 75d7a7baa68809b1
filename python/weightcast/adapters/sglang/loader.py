"""The custom weight loader: the worker's side of updates of an SGLang engine.

Started with `--custom-weight-loader weightcast.adapters.sglang.load`, SGLang calls `load` in the scheduler
of every tensor-parallel rank, for each `/update_weights_from_tensor` that names it.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from ... import _core
from ..engine import EngineShard, Settings
from .identity import refuse, replica_of
from .model import read
from .report import Report, gathered, watch_updates

log = logging.getLogger("weightcast")

#: The shard of each model of this process, by the model's identity: shards keep their models alive.
_shards: dict[int, EngineShard] = {}


def load(model: nn.Module, named_tensors: list[tuple[str, torch.Tensor]]) -> None:
    """Does what the one name of `named_tensors` asks: see `request`. All ranks call it.

    Never raises, since SGLang ends an engine whose loader raises: how it went is in the report, which
    `watch_updates` makes the answer of SGLang's request.
    """
    watch_updates()
    error = None
    try:
        _do(model, **json.loads(named_tensors[0][0]))
    except Exception as raised:
        log.warning("%s", raised, exc_info=True)
        error = f"{type(raised).__name__}: {raised}"
    shard = _shards.get(id(model))
    state = None if shard is None else asdict(shard.state)
    gathered(Report(error, state))


def _do(model: nn.Module, do: str, **named: Any) -> None:
    if do not in _CALLS:
        raise _core.Misuse(f"{do!r} is not known to the weightcast of this engine; versions differ")
    _CALLS[do](model, **named)


def _join(model: nn.Module, settings: dict[str, Any], instance: str) -> None:
    """Joins the job. A second call with the same settings (of a trainer that was started again) changes
    nothing; with others, this worker leaves the job and joins the other."""
    asked = Settings(**settings)
    shard = _shards.get(id(model))
    if shard is not None and shard.settings == asked and shard.answers():
        return
    _leave(model)
    refuse(asked)
    replica = replica_of(asked, instance)
    _shards[id(model)] = EngineShard(
        asked, replica, lambda catalog: read(model, catalog, **asked.reading())
    )


def _begin(model: nn.Module) -> None:
    _joined(model).begin()


def _fetch(model: nn.Module, **info: Any) -> None:
    _joined(model).fetch(**info)


def _install(model: nn.Module) -> None:
    # A batch that was under way when the engine paused still reads the parameters.
    _synchronise()
    _joined(model).install()
    _synchronise()


def _leave(model: nn.Module) -> None:
    """Leaves the job. The parameters stay as they are."""
    shard = _shards.pop(id(model), None)
    if shard is not None:
        shard.close()


def _nothing(model: nn.Module) -> None:
    """The report is all that was asked for."""


_CALLS: dict[str, Callable[..., None]] = {
    "watch": _nothing,
    "state": _nothing,
    "join": _join,
    "begin": _begin,
    "fetch": _fetch,
    "install": _install,
    "leave": _leave,
}


def _joined(model: nn.Module) -> EngineShard:
    shard = _shards.get(id(model))
    if shard is None:
        raise _core.Misuse("this engine has not joined a job: it was started again, or never asked to join")
    return shard


def _synchronise() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
