"""Host memory beside tensors: what is registered is the copy.

Tensors of a GPU always have one; those of the host if a layout is made with `beside=True`. `publish`
copies out of the tensors, `install` copies into them. On a GPU both run on the current stream, behind the
work that is queued there, and return when the copies are complete.
"""

from typing import Any

from .pinned import PinnedMemory


class HostCopies:
    """Pairs of a tensor and its copy in host memory, which is page-locked for tensors of a GPU."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        self._memory = PinnedMemory()
        #: Whether the copies hold what the tensors do not, all or some.
        self.ahead = False

    def __len__(self) -> int:
        return len(self._pairs)

    def of(self, tensor: Any) -> Any:
        """A new copy's memory, of the same shape and dtype; nothing is copied yet. The tensor is kept
        alive."""
        copy = self._memory.empty(tensor)
        self._pairs.append((tensor.detach(), copy))
        return copy

    def out(self) -> None:
        """Copies every tensor into host memory."""
        for tensor, copy in self._pairs:
            copy.copy_(tensor, non_blocking=True)
        self._complete()
        self.ahead = False

    def into(self) -> None:
        """Copies host memory into every tensor. After an error some have changed: call it again."""
        self.ahead = True
        for tensor, copy in self._pairs:
            tensor.copy_(copy, non_blocking=True)
        self._complete()
        self.ahead = False

    def _complete(self) -> None:
        """Waits for the copies themselves: to have queued them says nothing of their bytes."""
        import torch

        for device in {tensor.device for tensor, _ in self._pairs if tensor.device.type != "cpu"}:
            torch.accelerator.current_stream(device).synchronize()
