"""Which published tensors reach the loaders of which parameters."""

from collections.abc import Mapping
from typing import Any

import torch

from .ops import tensors_in
from .recorder import Recorder


class Watched:
    """Notes which published tensors reach the loaders of which parameters, while entered."""

    def __init__(self, recorder: Recorder, parameters: Mapping[str, torch.Tensor]) -> None:
        self._recorder = recorder
        self._parameters = parameters
        self._before: list[tuple[torch.Tensor, Any]] = []

    def __enter__(self) -> "Watched":
        for name, parameter in self._parameters.items():
            loader = getattr(parameter, "weight_loader", None)
            if callable(loader):
                self._before.append((parameter, loader))
                _set(parameter, self._watch(name, loader))
        return self

    def __exit__(self, *_: Any) -> None:
        for parameter, loader in self._before:
            _set(parameter, loader)

    def _watch(self, name: str, loader: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            for tensor in tensors_in((args, kwargs)):
                mark = self._recorder.mark_of(tensor)
                if mark is not None:
                    self._recorder.recording.reached[mark.tensor] = name
            return loader(*args, **kwargs)

        # Engines ask loaders about themselves by attributes.
        watched.__dict__.update(getattr(loader, "__dict__", {}))
        watched.__name__ = getattr(loader, "__name__", "weight_loader")
        return watched


def _set(parameter: torch.Tensor, loader: Any) -> None:
    try:
        parameter.weight_loader = loader
    except AttributeError:
        # SGLang's quantised parameters have a property over it, which only reads.
        parameter._weight_loader = loader
