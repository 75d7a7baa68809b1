"""Stand-ins for engines' packages, which the tests' environment does not have."""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest


def stand_in(
    monkeypatch: pytest.MonkeyPatch, package: str, contents: dict[str, dict[str, Any]], ours: Iterable[str]
) -> None:
    """Puts modules of these contents in the place of a package; `ours` are modules that are imported anew, with
    them."""
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ours:
        monkeypatch.delitem(sys.modules, name, raising=False)
        above, _, last = name.rpartition(".")
        if last in vars(sys.modules.get(above, sys)):
            monkeypatch.delattr(sys.modules[above], last)
    for path, attributes in contents.items():
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in sys.modules:
                monkeypatch.setitem(sys.modules, name, ModuleType(name))
            if end > 1:
                monkeypatch.setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[name], raising=False)
        for name, value in attributes.items():
            monkeypatch.setattr(sys.modules[path], name, value, raising=False)
