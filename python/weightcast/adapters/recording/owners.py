"""Whose memory it is that a view is of."""

from collections.abc import Mapping

import torch

from ..boxes.strides import View


def view(tensor: torch.Tensor) -> View:
    """A tensor's place in its storage."""
    return View(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def storage(tensor: torch.Tensor) -> int:
    """What identifies a tensor's storage while it is alive, on the meta device too."""
    identity: int = tensor.untyped_storage()._cdata
    return identity


class Owners:
    """Finds the tensor that a view is part of.

    Tensors may share a storage: side by side, or one as a view of another. Of several that a view
    is part of, the largest owns it, and the first of those.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._spans: dict[int, list[tuple[int, int, str]]] = {}
        for name, tensor in tensors.items():
            if tensor.numel():
                self._spans.setdefault(storage(tensor), []).append((*_span(tensor), name))
        for spans in self._spans.values():
            spans.sort(key=lambda span: span[0] - span[1])  # stable: the first stays first

    def of(self, tensor: torch.Tensor) -> str | None:
        """The name of the tensor that this view is part of."""
        spans = self._spans.get(storage(tensor))
        if spans is None:
            return None
        start, end = _span(tensor)
        return next((name for s, e, name in spans if s <= start and end <= e), None)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte, and the one after the last, in the storage."""
    size = tensor.element_size()
    start = tensor.storage_offset()
    if not tensor.numel():
        return start * size, start * size
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start * size, (start + reach + 1) * size
