"""What a vLLM worker says of its weights, and that it runs no model whose weights are incomplete."""

import functools
from dataclasses import asdict
from typing import Any


def refuse_incomplete() -> None:
    """From now on, workers of this process ask their weight-transfer engine before they run the model.

    vLLM has no hook for this: after an update that failed midway, its own engines generate on from
    weights that are half new. The worker's `execute_model` is wrapped once, in every class that has one.
    """
    from vllm.v1.worker.gpu_worker import Worker

    for kind in (Worker, *_below(Worker)):
        if "execute_model" in vars(kind):
            _wrap(kind)
    Worker.weightcast_state = _state


def _state(worker: Any) -> dict[str, Any] | None:
    """`EngineState` of a worker, for `collective_rpc("weightcast_state")`; None before it has joined."""
    state = getattr(worker.weight_transfer_engine, "state", None)
    return None if state is None else asdict(state)


def _below(kind: type) -> list[type]:
    found: list[Any] = list(kind.__subclasses__())
    return found + [further for direct in found for further in _below(direct)]


def _wrap(kind: Any) -> None:
    run = kind.execute_model
    if hasattr(run, "asks_weightcast"):
        return

    @functools.wraps(run)
    def execute_model(self: Any, *arguments: Any, **named: Any) -> Any:
        engine = getattr(self, "weight_transfer_engine", None)
        check = getattr(engine, "check_serving", None)
        if check is not None:
            check()
        return run(self, *arguments, **named)

    execute_model.asks_weightcast = True  # type: ignore[attr-defined]
    kind.execute_model = execute_model
