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
    engine = worker.weight_transfer_engine
    if step == "state":
        return asdict(engine.slots(worker).shard(name).state)
    steps: dict[str, Callable[[], None]] = {
        "join": lambda: engine.join_adapter(worker, Settings(**info)),
        "begin": lambda: engine.slots(worker).shard(name).begin(),
        "fetch": lambda: engine.slots(worker).shard(name).fetch(**info),
        "drop": lambda: engine.slots(worker).drop(name),
    }
    together(worker, steps[step])
    return None


def add_lora(worker: Any, add: Callable[..., Any], request: Any) -> bool:
    """In the place of a worker's `add_lora`: installs, on all workers or on none, the fetched version that
    the request's path names."""
    path = parsed(request.lora_path)
    if path is None:
        return bool(add(request))
    slots = worker.weight_transfer_engine.slots(worker)
    taking_back: list[Callable[[], None]] = []

    def undo() -> None:
        for take_back in taking_back:
            take_back()

    if not together(worker, lambda: taking_back.append(slots.put(path, request)), undo):
        return False  # the last worker raises
    shard = slots.shard(path.name)
    if shard.state.fetched == path.version:
        shard.install()
    return True


def manager_of(worker: Any) -> Any:
    """vLLM's LoRA manager of a worker."""
    manager = getattr(worker.model_runner, "lora_manager", None)
    if manager is None:
        raise _core.Misuse(
            "this engine takes no LoRA adapters; start it with --enable-lora, --max-loras for how many at "
            "once, and --max-lora-rank"
        )
    return manager
