"""Memory that somebody else can take away: mappings of files that can be made shorter.

Whoever touches a page of a mapping beyond the end of its file gets SIGBUS, which ends the process.
Digests of what is published touch all of it.
"""

import sys
import warnings
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

#: Bytes, name by name: name, address, length.
Places = Iterable[tuple[str, int, int]]
#: Mappings that name no file, or one that cannot be opened by its name any more: shared memory of
#: torch and of memfds. Who holds such a descriptor can cut it too, which is his own.
NAMELESS = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV", "/dev/hugepages/", "[")
DELETED = " (deleted)"
NOWHERE = (sys.maxsize, sys.maxsize, "")


def _files(maps: str) -> list[tuple[int, int, str]]:
    """Where files are mapped that can be opened by their names: first address, last, path."""
    found = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or fields[5].startswith(NAMELESS) or fields[5].endswith(DELETED):
            continue
        first, _, end = fields[0].partition("-")
        found.append((int(first, 16), int(end, 16), fields[5]))
    return found


def in_files(places: Places) -> dict[str, list[str]]:
    """The names whose bytes lie in mapped files, by file."""
    try:
        files = _files(Path("/proc/self/maps").read_text(errors="replace"))
    except OSError:
        return {}
    ends = [end for _, end, _ in files]
    found: dict[str, list[str]] = {}
    for name, address, length in places:
        # The kernel lists them in order: the first that ends behind the address may hold it.
        first, _, path = files[at] if (at := bisect_right(ends, address)) < len(files) else NOWHERE
        if length and first < address + length:
            found.setdefault(path, []).append(name)
    return found


def warn(places: Places, level: int) -> None:
    """Warns of memory that goes away when somebody writes a file anew."""
    for path, names in in_files(places).items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        warnings.warn(
            f"{shown}: mapped from the file {path}. If it is truncated or written anew (a "
            "checkpoint saved over the one that was loaded), this process dies of SIGBUS: register "
            "a copy (tensor.clone(), np.array(array)), or never write to that file",
            stacklevel=level + 1,
        )
