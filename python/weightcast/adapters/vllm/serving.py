"""What vLLM's workers ask of their weight-transfer engine, which vLLM has no hooks for: whether they may run
the model, what to do around a sleep, and how the other workers fared."""

import functools
import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from .agreed import agreed, exchanged
from .forms import call_of
from .lora.steps import adapter_step, add_lora
from .turns import turn_step


def watch_workers() -> None:
    """Wraps, once, the methods of the worker classes of this process; adds those of `ADDED`.

    After an update that failed midway, vLLM's own engines generate on from weights that are half new; a
    sleep of level 2 discards weights, and nobody looks whether they have come back.
    """
    from vllm.v1.worker.gpu_worker import Worker

    for kind in (Worker, *_below(Worker)):
        for method, wrapped in WRAPPED.items():
            if method in vars(kind):
                _wrap(kind, method, wrapped)
    for name, added in ADDED.items():
        setattr(Worker, name, added)


def _state(worker: Any) -> dict[str, Any] | None:
    """`EngineState` of a worker, for `collective_rpc("weightcast_state")`; None before it has joined."""
    state = getattr(worker.weight_transfer_engine, "state", None)
    return None if state is None else asdict(state)


def order(worker: Any, order: dict[str, Any]) -> dict[str, Any] | None:
    """An order of a fleet's driver came in: the answer of `Orders.order`; None before the worker has
    joined."""
    from vllm.config import set_current_vllm_config

    engine: Any = getattr(worker, "weight_transfer_engine", None)
    if getattr(engine, "orders", None) is None:
        return None
    with set_current_vllm_config(engine.vllm_config):
        return dict(engine.orders.order(order))


def performed(worker: Any, attempt: dict[str, Any], failure: str | None) -> dict[str, Any]:
    """The engine has taken a step: the answer of `Orders.performed`."""
    return dict(worker.weight_transfer_engine.orders.performed(attempt, failure))


def release(worker: Any) -> None:
    """What the worker holds counts as what its engine is to serve."""
    worker.weight_transfer_engine.orders.renew()


def _run(worker: Any, run: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    worker.weight_transfer_engine.check_serving()
    return run(*arguments, **named)


def _sleep(worker: Any, sleep: Callable[..., Any], level: int = 1) -> None:
    worker.weight_transfer_engine.before_sleep(level)
    sleep(level)


def _wake_up(worker: Any, wake_up: Callable[..., Any], tags: list[str] | None = None) -> None:
    wake_up(tags)
    worker.weight_transfer_engine.after_wake(tags)
    # What vLLM's LoRA manager had in the engine's memory may have gone: it loads that again.
    reset = getattr(getattr(worker, "model_runner", None), "reset_lora_state", None)
    if reset is not None:
        reset()


def join(worker: Any, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """Has a worker join a job, and its engine know the draft, which vLLM hands over in another step alone.
    The workers take orders as one engine from then on."""
    engine = worker.weight_transfer_engine
    engine.vllm_config = worker.vllm_config
    engine.draft_model = getattr(worker, "get_draft_model", lambda: None)()
    engine.model_runner = getattr(worker, "model_runner", None)
    life = exchanged({"life": secrets.randbits(63)})[0]["life"]

    def joining() -> None:
        call(*arguments, **named)
        engine.open_gate(life)

    agreed(worker, "join", joining)


def _step(name: str) -> Callable[..., None]:
    def take(worker: Any, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        agreed(worker, name, functools.partial(call_of(name, worker, call), *arguments, **named))

    return take


#: Methods that workers have for `collective_rpc`.
ADDED: dict[str, Callable[..., Any]] = {
    "weightcast_state": _state,
    "weightcast_order": order,
    "weightcast_performed": performed,
    "weightcast_release": release,
    "weightcast_adapter": adapter_step,
    "weightcast_turn": turn_step,
}

#: By method of a worker: what is done in its place, with the worker and the method.
WRAPPED: dict[str, Callable[..., Any]] = {
    "execute_model": _run,
    "sleep": _sleep,
    "wake_up": _wake_up,
    "add_lora": add_lora,
    "init_weight_transfer_engine": join,
    "start_weight_update": _step("begin"),
    "update_weights": _step("fetch"),
    "finish_weight_update": _step("finish"),
}


def _below(kind: type) -> list[type]:
    found: list[Any] = list(kind.__subclasses__())
    return found + [further for direct in found for further in _below(direct)]


def _wrap(kind: Any, method: str, wrapped: Callable[..., Any]) -> None:
    inner = getattr(kind, method)
    if hasattr(inner, "asks_weightcast"):
        return

    @functools.wraps(inner)
    def outer(self: Any, *arguments: Any, **named: Any) -> Any:
        from .worker import WeightcastEngine

        engine = getattr(self, "weight_transfer_engine", None)
        if not isinstance(engine, WeightcastEngine):
            return inner(self, *arguments, **named)
        return wrapped(self, functools.partial(inner, self), *arguments, **named)

    outer.asks_weightcast = True  # type: ignore[attr-defined]
    setattr(kind, method, outer)
