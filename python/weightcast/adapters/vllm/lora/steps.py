"""What a trainer asks of all workers of an engine about an adapter: vLLM calls it on each."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from .... import _core
from ...engine import Settings
from ..agreed import together
from .paths import parsed


def adapter_step(worker: Any, step: str, name: str, info: dict[str, Any]) -> Any:
    """`weightcast_adapter` of a worker: `join` (`info` has the fields of `Settings`), `begin`, `fetch`
    (those of `UpdateInfo`), `state`, `drop`. All workers take a step, or none counts as having."""
    said: list[Any] = []
    together(worker, lambda: said.append(_taken(worker, step, name, info)))
    return said[0] if said else None


def _taken(worker: Any, step: str, name: str, info: dict[str, Any]) -> Any:
    engine = worker.weight_transfer_engine
    slots = engine.slots(worker)
    steps: dict[str, Callable[[], Any]] = {
        "join": lambda: engine.join_adapter(worker, Settings(**info)),
        "begin": lambda: slots.shard(name).begin(),
        "fetch": lambda: slots.shard(name).fetch(**info),
        "state": lambda: asdict(slots.shard(name).state),
        "drop": lambda: slots.drop(name),
    }
    return steps[step]()


def add_lora(worker: Any, add: Callable[..., Any], request: Any) -> bool:
    """In the place of a worker's `add_lora`: installs, on all workers or on none, the fetched version that
    the request's path names. Of other paths only the errors are told together."""
    if worker.parallel_config.data_parallel_size > 1:
        return bool(add(request))  # no adapter of ours: see `replica_of`
    said: list[bool] = []
    taking_back: list[Callable[[], None]] = []

    def take() -> None:
        path = parsed(request.lora_path)
        if path is None:
            said.append(bool(add(request)))
        else:
            taking_back.append(worker.weight_transfer_engine.slots(worker).put(path, request))

    def undo() -> None:
        for take_back in taking_back:
            take_back()

    if not together(worker, take, undo):
        return False  # the last worker raises
    return all(said) and together(worker, lambda: _note(worker, request))


def _note(worker: Any, request: Any) -> None:
    path = parsed(request.lora_path)
    if path is not None:
        worker.weight_transfer_engine.slots(worker).installed(path)


def manager_of(worker: Any) -> Any:
    """vLLM's LoRA manager of a worker."""
    manager = getattr(worker.model_runner, "lora_manager", None)
    if manager is None:
        raise _core.Misuse(
            "this engine takes no LoRA adapters; start it with --enable-lora, --max-loras for how many at "
            "once, and --max-lora-rank"
        )
    return manager
