"""Published names, and those that an engine's loader knows them by."""

from collections.abc import Callable, Iterable

from ... import _core

#: From a published name to the loader's, or to None to leave it out.
Rename = Callable[[str], str | None]


def known_names(published: Iterable[str], rename: Rename | None) -> dict[str, str]:
    """The loader's name of each published tensor that is not left out. Two of one name are an
    error."""
    known: dict[str, str] = {}
    first: dict[str, str] = {}
    for name in published:
        other = name if rename is None else rename(name)
        if other is None:
            continue
        if other in first:
            raise _core.Misuse(
                f"{first[other]} and {name} are both renamed to {other}; return None for one of them"
            )
        known[name], first[other] = other, name
    return known
