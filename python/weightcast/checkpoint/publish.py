"""`publish`: safetensors files as a trainer's replica, read by others where they lie."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..adapters.catalog import Entry, header_of
from ..handle import DEADLINE, Handle, open
from ..layout import Layout, part
from ..replica import Replica
from .files import Placed, bytes_of


@dataclass(frozen=True)
class Published:
    """A checkpoint that is published."""

    #: To list or to wait with; it is closed when the checkpoint's context is left.
    handle: Handle
    model: str
    version: int
    #: Tensors, and their bytes.
    tensors: int
    nbytes: int


@contextmanager
def publish(
    directory: str | os.PathLike[str],
    model: str,
    version: int,
    *,
    replica: str = "checkpoint",
    epoch: str = "current",
    retain: int = 0,
    deadline: float = DEADLINE,
    **options: Any,
) -> Iterator[Published]:
    """Publishes the checkpoint in `directory` (or one safetensors file) as `version` of `model`, inside.

    The files are mapped, not loaded: pages come from disk as replicas read them, and must not change
    meanwhile. Leaving waits until nobody reads; the version goes with its last copy, unless it is retained
    (`retain` newest ones, or by name). With `epoch="new"` a new run begins, whose versions are newer than all
    before. `options` are those of `weightcast.open`.

    Raises `Misuse` for a file that is not whole, or a tensor that two files have."""
    layout = Layout()
    layout.mapped = True
    placed = list(_tensors(Path(directory)))
    for tensor, mapped in placed:
        whole = part(tensor.name, shape=tensor.entry.shape)
        layout.add(tensor.within(mapped), whole, dtype=tensor.entry.dtype)
    with open(model, Replica(replica), role="trainer", epoch=epoch, retain=retain, **options) as handle:
        handle.register(layout, deadline=deadline)
        with handle.published(version, deadline=deadline):
            handle.wait_sealed(deadline=deadline)
            nbytes = sum(tensor.nbytes for tensor, _ in placed)
            yield Published(handle, model, version, len(placed), nbytes)


def _tensors(path: Path) -> Iterator[tuple[Placed, np.ndarray]]:
    """All tensors of a checkpoint, each with its file's bytes."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise _core.Misuse(f"{path}: no safetensors files; name a directory that has some, or one file")
    seen: dict[str, Path] = {}
    for file in files:
        header, start = header_of(file)
        mapped = np.memmap(file, np.uint8, "r")
        for name, told in header.items():
            if name == "__metadata__":
                continue
            if name in seen:
                raise _core.Misuse(f"{name} is in {seen[name]} and in {file}: remove one of the two files")
            seen[name] = file
            yield _placed(file, name, told, start, len(mapped)), mapped


def _placed(file: Path, name: str, told: Any, start: int, length: int) -> Placed:
    try:
        entry = Entry(tuple(int(n) for n in told["shape"]), str(told["dtype"]))
        first, end = (int(n) for n in told["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise _core.Misuse(f"{file}: its header does not say where {name} lies") from None
    nbytes = bytes_of(name, entry)
    if min(entry.shape, default=0) < 0 or first < 0 or end - first != nbytes:
        what = f"{name} ({entry.dtype} {list(entry.shape)})"
        raise _core.Misuse(f"{file}: {what} has bytes {first} to {end}, not {nbytes} of them")
    if start + end > length:
        raise _core.Misuse(f"{file}: {name} ends at byte {start + end} of {length}: the file is not whole")
    return Placed(name, entry, start + first, nbytes)
