"""Bars that show the progress of a read."""

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

#: What `update(progress=...)` calls: bytes that have arrived, bytes in all.
Progress = Callable[[int, int], object]

#: Seconds between two lines where the output is no terminal: a log is not to fill up.
LINES = 5.0


class _Shown(Protocol):
    """The bar of one call."""

    def show(self, arrived: int, total: int) -> None: ...

    def close(self) -> None: ...


class ProgressBar:
    """A bar that begins with the first bytes of a call and ends with the call."""

    def __init__(self, make: Callable[[int], _Shown]) -> None:
        self._make = make
        self._shown: _Shown | None = None

    def __call__(self, arrived: int, total: int) -> None:
        """Shows the progress of the read."""
        if self._shown is None:
            self._shown = self._make(total)
        self._shown.show(arrived, total)

    def close(self) -> None:
        """The call has ended; the next one gets a bar of its own."""
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.close()


def progress_bar(label: str = "weights") -> ProgressBar:
    """A bar for `update(progress=...)` and `replicate(progress=...)`: of tqdm if that is installed, else
    of rich, else a plain line on standard error. A bar serves all calls of a handle, one after the other."""
    if (tqdm := _module("tqdm")) is not None:
        return ProgressBar(lambda total: _Tqdm(tqdm, label, total))
    if (rich := _module("rich.progress")) is not None:
        return ProgressBar(lambda total: _Rich(rich, label, total))
    return ProgressBar(lambda _: _Line(sys.stderr, label))


def _module(name: str) -> Any | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class _Tqdm:
    def __init__(self, library: Any, label: str, total: int) -> None:
        self._bar = library.tqdm(desc=label, total=total, unit="B", unit_scale=True)

    def show(self, arrived: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(arrived - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class _Rich:
    def __init__(self, library: Any, label: str, total: int) -> None:
        self._bar = library.Progress(
            library.TextColumn("{task.description}"),
            library.BarColumn(),
            library.DownloadColumn(),
            library.TransferSpeedColumn(),
            library.TimeRemainingColumn(),
        )
        self._bar.start()
        self._task = self._bar.add_task(label, total=total)

    def show(self, arrived: int, total: int) -> None:
        self._bar.update(self._task, completed=arrived, total=total)

    def close(self) -> None:
        self._bar.stop()


class _Line:
    """A line that is written over on a terminal; elsewhere a new line now and then."""

    def __init__(self, out: TextIO, label: str) -> None:
        self._out = out
        self._label = label
        self._terminal = out.isatty()
        self._began = self._said = time.monotonic()

    def show(self, arrived: int, total: int) -> None:
        now = time.monotonic()
        if not self._terminal and arrived < total and now - self._said < LINES:
            return
        self._said = now
        percent = 100 * arrived // total if total else 100
        rate = arrived / max(now - self._began, 1e-3)
        line = f"{self._label} {percent:3} %  {_size(arrived)} of {_size(total)}  {_size(rate)}/s"
        self._out.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        self._out.flush()

    def close(self) -> None:
        if self._terminal:
            self._out.write("\n")


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1e3:
            return f"{count:.0f} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1e3
    return f"{count:.2f} TB"
