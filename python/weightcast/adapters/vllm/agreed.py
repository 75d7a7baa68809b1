"""Steps of an update that all workers of a vLLM engine take, or none counts as taken.

vLLM reads the workers' answers in rank order and stops at the first that is an error, and never reads those
behind it: from then on it takes them for answers to later calls (0.32). So workers tell each other how a step
went, agree on what vLLM notes about the update, and the last one alone raises.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from ..engine.exchange import SIZE, exchange

log = logging.getLogger("weightcast")

#: Characters that an error has at most: each may take six bytes.
LONGEST = SIZE // 6 - 64


class StepFailed(RuntimeError):
    """Workers of an engine did not take a step; says which, and why."""


def agreed(worker: Any, step: str, call: Callable[[], Any]) -> None:
    """Takes a step on this worker, and raises on the last one if any failed. All workers call."""
    error = _error_of(call)
    engine = worker.weight_transfer_engine
    said = exchanged({"error": error, **_held(engine)})
    failed = _failed(said)
    if not failed:
        if getattr(engine, "abandoned", False):
            worker._weight_update_active = False
        return
    # An install can be tried again on all workers, or on none.
    worker._weight_update_active = step == "finish"
    if step == "finish" and _apart(said):
        engine.spoil("another worker of this engine did not install the version")
    if worker.rank == len(said) - 1:
        raise StepFailed("; ".join(failed))


def together(worker: Any, call: Callable[[], Any], undo: Callable[[], None] | None = None) -> bool:
    """Makes a call on this worker, and says whether it went well on all. If it failed on any, undoes it here
    too, and raises on the last worker. All workers call."""
    said = exchanged({"error": _error_of(call)})
    failed = _failed(said)
    if failed and undo is not None:
        failed += _failed(exchanged({"error": _error_of(undo)}))
    if failed and worker.rank == len(said) - 1:
        raise StepFailed("; ".join(failed))
    return not failed


def _failed(said: list[dict[str, Any]]) -> list[str]:
    errors = enumerate(each["error"] for each in said)
    return [f"worker {rank}: {error}" for rank, error in errors if error is not None]


def _error_of(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except Exception as raised:
        log.warning("%s", raised, exc_info=True)
        return f"{str(raised) or type(raised).__name__}"[:LONGEST]
    return None


def _held(engine: Any) -> dict[str, Any]:
    state = getattr(engine, "state", None)
    if state is None:
        return {"installed": None, "whole": True}
    return {"installed": state.installed, "whole": state.incomplete is None}


def _apart(said: list[dict[str, Any]]) -> bool:
    """Whether workers hold different versions, or one of them none."""
    return len({each["installed"] for each in said}) > 1 or not all(each["whole"] for each in said)


def exchanged(own: dict[str, Any]) -> list[dict[str, Any]]:
    """What the workers of the engine say, in rank order. All workers call."""
    from vllm.distributed import parallel_state

    group = parallel_state.get_world_group()
    if group.world_size == 1:
        return [own]
    return [json.loads(text) for text in exchange(json.dumps(own), group.cpu_group)]
