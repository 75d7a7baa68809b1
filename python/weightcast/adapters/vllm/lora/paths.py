"""Paths of adapters that no file system has: `weightcast://NAME/RUN/VERSION`.

vLLM keys its prefix cache by the name and the path of a request's adapter. A path that names the version is
therefore what keeps a new version from meeting what was computed with the former one; the run sets apart
versions of the same number that different trainers sent.
"""

from dataclasses import dataclass

_SCHEME = "weightcast://"


@dataclass(frozen=True)
class AdapterPath:
    """One version of an adapter."""

    name: str
    run: str
    version: int

    def __str__(self) -> str:
        return f"{_SCHEME}{self.name}/{self.run}/{self.version}"


def parsed(path: str) -> AdapterPath | None:
    """What a path means; None for one of another kind."""
    if not path.startswith(_SCHEME):
        return None
    name, _, rest = path.removeprefix(_SCHEME).rpartition("/")
    name, _, run = name.rpartition("/")
    if not name or not rest.isdecimal():
        raise ValueError(f"{path!r} names no version of an adapter: {_SCHEME}NAME/RUN/VERSION")
    return AdapterPath(name, run, int(rest))
