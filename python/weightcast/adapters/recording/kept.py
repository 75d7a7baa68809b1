"""A model keeps the parameters, buffers and modules that it has, whatever its loader does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from .recorder import Refused

#: torch's own tables of a module: it has no public way to put a parameter back as it was.
TABLES = ("_parameters", "_buffers", "_modules")


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Whatever is done inside to the tables of a model's modules is undone at the end."""
    before = [(m, _tables(m), set(m._non_persistent_buffers_set)) for m in model.modules()]
    try:
        yield
    finally:
        for module, tables, hidden in before:
            for table, entries in tables.items():
                getattr(module, table).clear()
                getattr(module, table).update(entries)
            module._non_persistent_buffers_set = hidden


def keeping(model: nn.Module) -> Callable[[Any], Any]:
    """The model's `load_weights`. Refused if other parameters, buffers or modules come of it."""

    def load(tensors: Any) -> Any:
        with kept(model):
            before = {name: _tables(module) for name, module in model.named_modules()}
            loaded = model.load_weights(tensors)
            after = {name: _tables(module) for name, module in model.named_modules()}
            for name, tables in after.items():
                for table, entries in tables.items():
                    _compare(name, before.get(name, {}).get(table, {}), entries)
            return loaded

    return load


def _tables(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {table: dict(getattr(module, table)) for table in TABLES}


def _compare(module: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    for own in before.keys() | after.keys():
        if before.get(own) is not after.get(own):
            name = f"{module}.{own}".lstrip(".")
            raise Refused(f"{name}: the loader makes or replaces this part of the model itself")
