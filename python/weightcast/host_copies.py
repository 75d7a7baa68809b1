"""Host memory beside tensors: what is registered is the copy.

Tensors of a GPU always have one; those of the host if a layout is made with `beside=True`. `publish`
copies out of the tensors, `install` copies into them. On a GPU both run on the current stream, behind the
work that is queued there, and return when that stream has come to their end.
"""

from bisect import bisect_right, insort
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ParamSpec, TypeVar

from ._core import Misuse
from .pinned import PinnedMemory

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: A version: its number and training run.
Version = tuple[int, int]


class HostCopies:
    """Pairs of a tensor and its copy in host memory, which is page-locked for tensors of a GPU."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        self._memory = PinnedMemory()
        #: By device, where each paired tensor begins and ends, and its name.
        self._places: dict[Any, list[tuple[int, int, str]]] = {}
        #: The version that was copied into the tensors last; None if they are ahead of what was.
        self.installed: Version | None = None
        #: Whether copying into the tensors has broken off: they may be of two versions.
        self.broken = False
        #: The version that is read from the copies now; told by the handle that registered them.
        self.held: Callable[[], Version | None] = lambda: None

    def __len__(self) -> int:
        return len(self._pairs)

    def beside(self, tensor: Any) -> Any:
        """Host memory of the same shape and dtype, for `pair`. Holds what the tensor holds."""
        copy = self._memory.empty(tensor)
        # What is no part of a layout, such as padding, is copied back as it was.
        copy.copy_(tensor)
        return copy

    def pair(self, name: str, tensor: Any, copy: Any) -> None:
        """Keeps a tensor and its copy equal from now on. The tensor is kept alive."""
        self._refuse_twice(name, tensor)
        self._pairs.append((tensor.detach(), copy))

    def _refuse_twice(self, name: str, tensor: Any) -> None:
        if not tensor.nbytes:
            return
        places = self._places.setdefault(tensor.device, [])
        start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        at = bisect_right(places, (start, end, name))
        near = places[max(0, at - 1) : at + 1]
        other = next((other for first, last, other in near if first < end and start < last), None)
        if other is not None:
            raise Misuse(
                f"{name} and {other} lie in the same memory, and each would be copied over the other; add "
                "the tensor once, and say with also() what else the tensor is"
            )
        insort(places, (start, end, name))

    def out(self) -> None:
        """Copies every tensor into host memory."""
        self.installed = None
        for tensor, copy in self._pairs:
            copy.copy_(tensor, non_blocking=True)
        self._complete()

    def into(self, version: Version | None) -> None:
        """Copies host memory, which holds `version`, into every tensor. After an error some have changed:
        call it again."""
        self.installed, self.broken = None, True
        for tensor, copy in self._pairs:
            tensor.copy_(copy, non_blocking=True)
        self._complete()
        self.installed, self.broken = version, False

    def on_current_streams(self, call: Callable[_P, _R]) -> Callable[_P, _R]:
        """The call as another thread is to make it: on the streams that are current in this thread."""
        import torch

        streams = [torch.cuda.current_stream(d) for d in self._devices() if d.type == "cuda"]
        if not streams:
            return call

        def on_streams(*arguments: _P.args, **options: _P.kwargs) -> _R:
            with ExitStack() as entered:
                for stream in streams:
                    entered.enter_context(torch.cuda.stream(stream))
                return call(*arguments, **options)

        return on_streams

    def _devices(self) -> set[Any]:
        return {tensor.device for tensor, _ in self._pairs}

    def _complete(self) -> None:
        """Waits for the copies themselves: to have queued them says nothing of their bytes."""
        import torch

        for device in self._devices():
            if device.type != "cpu":
                torch.accelerator.current_stream(device).synchronize()
