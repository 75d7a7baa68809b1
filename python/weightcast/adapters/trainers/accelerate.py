"""Loops over Accelerate, or over torch alone.

    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    with publish_steps(model, optimizer, "policy"):
        ...  # the loop, as it was
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import _core
from .steps import Steps


@contextmanager
def publish_steps(module: Any, optimizer: Any, model: str = "policy", **arguments: Any) -> Iterator[Steps]:
    """Publishes a module's weights after each step of its optimizer inside the `with`. Both are as
    `Accelerator.prepare` returns them, or torch's own. A call of `step` that changes nothing, because
    gradients are still accumulated or have overflowed, is no step. `arguments` are those of `Steps`."""
    inner = _torch_optimizer(optimizer)
    steps, count = Steps(model, **arguments), 0

    def before(*_: Any) -> None:
        steps.before()

    def after(*_: Any) -> None:
        nonlocal count
        count += 1
        steps.after(count)

    steps.begin(module)
    hooks = [inner.register_step_pre_hook(before), inner.register_step_post_hook(after)]
    try:
        yield steps
    finally:
        for hook in hooks:
            hook.remove()
        steps.end()


def _torch_optimizer(optimizer: Any) -> Any:
    """The optimizer whose `step` changes the weights."""
    if type(optimizer).__name__ == "DeepSpeedOptimizerWrapper":
        raise _core.Misuse(
            "DeepSpeed's engine steps by itself, and tells no hook of the optimizer; call "
            "weightcast.adapters.trainers.steps.Steps around each step"
        )
    # Accelerate's is an optimizer of torch too, by its class, and has no hooks of its own.
    while "optimizer" in getattr(optimizer, "__dict__", ()):
        optimizer = optimizer.optimizer
    if not hasattr(optimizer, "register_step_pre_hook"):
        raise _core.Misuse(
            f"{type(optimizer).__name__} is no optimizer of torch, which tells before and after each step; "
            "call weightcast.adapters.trainers.steps.Steps around each step"
        )
    return optimizer
