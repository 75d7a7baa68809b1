"""What a function makes of tensors, and what making takes, found out on tensors without memory."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import _core

Make = Callable[..., torch.Tensor | Sequence[torch.Tensor]]


def outputs(made: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a function returns, as a list."""
    return [made] if isinstance(made, torch.Tensor) else list(made)


def tried(name: str, make: Make, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
    """What `make` returns for tensors of these shapes and types, and the most bytes that it has at one time
    beside them. Nothing is computed. Memory that a kernel takes inside of itself is not seen."""
    metas = [torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for tensor in inputs]
    counted = _Counted(metas)
    try:
        with torch.no_grad(), counted:
            made = outputs(make(*metas))
    except Exception as error:
        raise _core.Misuse(
            f"{name}: its function could not be asked what it makes, on tensors of the device `meta`, which "
            f"have shapes and no values ({type(error).__name__}: {error}); give like=, a function of the "
            "same inputs that returns empty tensors of the shapes and types"
        ) from error
    return made, counted.peak


class _Counted(TorchDispatchMode):
    """Counts bytes of memory that is made while it is entered, as long as each lives."""

    def __init__(self, known: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._known = {id(tensor.untyped_storage()): tensor.untyped_storage() for tensor in known}
        self._seen: dict[int, Any] = {}
        self._now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, and looks at what it returns."""
        returned = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(returned):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor.untyped_storage())
        return returned

    def _see(self, storage: Any) -> None:
        which = id(storage)
        if which in self._known or which in self._seen:
            return
        nbytes = storage.nbytes()
        self._now += nbytes
        self.peak = max(self.peak, self._now)
        self._seen[which] = weakref.finalize(storage, self._gone, which, nbytes)

    def _gone(self, which: int, nbytes: int) -> None:
        del self._seen[which]
        self._now -= nbytes
