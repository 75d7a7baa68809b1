"""`pull`: a version from any replicas into safetensors files, with no copy in between."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core, selector
from ..handle import DEADLINE, Handle, open
from ..layout import Layout, part
from ..progress import Progress
from ..replica import Replica
from .files import SHARD_BYTES, File, index, planned

#: Where tensors are looked up if there are several files.
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Pulled:
    """What `pull` has written."""

    model: str
    version: int
    epoch: int
    #: Bytes of tensors.
    nbytes: int
    files: tuple[Path, ...]


def pull(
    model: str,
    directory: str | os.PathLike[str],
    *,
    version: selector.Selector | int | str = "latest",
    shard_bytes: int = SHARD_BYTES,
    overwrite: bool = False,
    progress: Progress | None = None,
    deadline: float = DEADLINE,
    **options: Any,
) -> Pulled:
    """Writes a version of `model` into `directory`: one safetensors file, or several of `shard_bytes` and
    their index.

    The bytes come from whichever replicas hold the version, in any layout, are verified, and land in the
    files' pages. The files have their names once all of them are complete; before that, and after a failure,
    there are none. `overwrite` replaces checkpoints that are there. The metadata of the files says which
    version they are. `options` are those of `weightcast.open` (`server`, `token_file`, `job`, ...);
    `deadline` is in seconds, for the version to come and for the read.

    Raises `Misuse` if there is a checkpoint already, `OSError` if there is no room, what `Handle.replicate`
    may raise."""
    target = Path(directory)
    _refuse(target, overwrite)
    me = Replica(f"pull-{secrets.token_hex(6)}")
    with open(model, me, **options) as handle, ExitStack() as undone:
        # The version stays while its names and sizes are looked up, and space is made.
        number = handle.retain(version, deadline=deadline)
        catalog = handle.catalog(deadline=deadline)
        files = planned(
            catalog,
            {"format": "pt", "weightcast.model": model, "weightcast.version": str(number)},
            shard_bytes,
        )
        target.mkdir(parents=True, exist_ok=True)
        written = [undone.enter_context(_partial(target, file)) for file in files]
        _fill(handle, files, written, number, progress, deadline)
        epoch = handle.epoch
        for partial, _ in written:
            _flushed(partial)
        _named(target, files, written)
    nbytes = sum(placed.nbytes for file in files for placed in file.tensors)
    return Pulled(model, number, epoch or 0, nbytes, tuple(target / file.name for file in files))


def _refuse(target: Path, overwrite: bool) -> None:
    there = sorted(target.glob("*.safetensors")) + sorted(target.glob(INDEX))
    if there and not overwrite:
        raise _core.Misuse(f"{there[0]} is there already; name another directory, or overwrite (--overwrite)")


@contextmanager
def _partial(target: Path, file: File) -> Iterator[tuple[Path, np.ndarray]]:
    """A file of full size under a passing name, mapped; gone afterwards, unless it has its own name then."""
    path = target / f".{file.name}.{secrets.token_hex(4)}.partial"
    try:
        with path.open("xb") as opened:
            opened.write(file.header)
            opened.flush()
            # Without room it is better to fail here than at a page.
            os.posix_fallocate(opened.fileno(), 0, file.nbytes)
        yield path, np.memmap(path, np.uint8, "r+")
    finally:
        path.unlink(missing_ok=True)


def _fill(
    handle: Handle,
    files: list[File],
    written: list[tuple[Path, np.ndarray]],
    number: int,
    progress: Progress | None,
    deadline: float,
) -> None:
    layout = Layout()
    layout.mapped = True
    for file, (_, mapped) in zip(files, written, strict=True):
        for placed in file.tensors:
            whole = part(placed.name, shape=placed.entry.shape)
            layout.add(placed.within(mapped), whole, dtype=placed.entry.dtype)
    handle.register(layout, deadline=deadline)
    handle.replicate(number, progress=progress, deadline=deadline)


def _flushed(path: Path) -> None:
    with path.open("rb") as opened:
        os.fsync(opened.fileno())


def _named(target: Path, files: list[File], written: list[tuple[Path, np.ndarray]]) -> None:
    """Gives the files their names. Those of an earlier checkpoint go first: no reader may mix the two."""
    (target / INDEX).unlink(missing_ok=True)
    for old in target.glob("*.safetensors"):
        old.unlink()
    for file, (path, _) in zip(files, written, strict=True):
        path.rename(target / file.name)
    if len(files) > 1:
        passing = target / f".{INDEX}.partial"
        passing.write_text(index(files))
        passing.rename(target / INDEX)
    folder = os.open(target, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
