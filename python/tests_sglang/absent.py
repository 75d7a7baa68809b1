"""Stands in for packages that SGLang imports and its model classes do not call on a CPU: kernels for
GPUs, and what only other models need.

Whatever is asked of them is another absence. Anything that computed with one would fail.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

ABSENT = {"deep_ep", "flashinfer", "gguf", "sgl_kernel", "torchvision", "triton"}


class Absent:
    """A name of a package that is not here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a decorator it leaves a function as it is.
        if len(args) == 1 and callable(args[0]) and not isinstance(args[0], Absent):
            return args[0]
        return self

    def __getitem__(self, _: Any) -> "Absent":
        return self

    def __or__(self, _: Any) -> "Absent":
        return self

    __ror__ = __or__

    def __iter__(self) -> Iterator:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __mro_entries__(self, _: tuple) -> tuple:
        return (object,)


class _Module(types.ModuleType):
    __path__: list = []
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] in self._names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install(names: set[str] = ABSENT) -> None:
    """From now on these can be imported. torch looks whether triton is there: it comes first."""
    import torch._dynamo
    import torch._inductor
    import torch.utils.flop_counter  # noqa: F401

    sys.meta_path.insert(0, _Finder(names))
