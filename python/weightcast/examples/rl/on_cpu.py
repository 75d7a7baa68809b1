"""A host without a GPU, for code that asks for one: what is made on `cuda` is made in host memory.

Nothing of a trainer's weights or of their layout depends on it.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnCPU(TorchFunctionMode):
    """Has every tensor live in host memory."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.type and len(args) == 1:
            return function(*args).replace("torch.", "torch.cuda.")
        if torch.device(kwargs.get("device") or "cpu").type == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def stand_in() -> None:
    """Functions of torch.cuda that are called whatever memory tensors lie in."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
