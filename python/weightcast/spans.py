"""Spans that this package writes itself, into the trace file of its process.

The core writes the spans of calls; those of work in Python go into the same file, as lines of Chrome's JSON
array format. They do not go to an OpenTelemetry collector.
"""

import json
import logging
import os
import sys
import threading
import time
from typing import Any

log = logging.getLogger("weightcast")

#: Tracks of the core have numbers from one; those of this package begin here.
FIRST_TRACK = 1_000_000

_lock = threading.Lock()
#: The file that `open(trace=)` or `serve(trace=)` named.
_named: str | None = None
_file: "_TraceLines | None" = None


def to_file(path: str | os.PathLike[str] | None) -> None:
    """Notes the file that the core writes spans to; None says nothing new. A process has one."""
    global _named
    if path is not None:
        with _lock:
            _named = _named or os.path.abspath(path)


def now() -> int:
    """The start or end of a span: nanoseconds of the wall clock, as the core's spans have it."""
    return time.time_ns()


def write(name: str, track: str, start: int, end: int, **fields: Any) -> None:
    """Writes a span that has ended, if the process has a trace file."""
    global _file
    with _lock:
        path = _named or os.environ.get("WEIGHTCAST_TRACE")
        if not path:
            return
        if _file is None or (_file.path, _file.pid) != (path, os.getpid()):
            if _file is not None:
                _file.close()
            _file = _TraceLines(path)
        _file.write(name, track, start, end, fields)


class _TraceLines:
    """The file, to be added to."""

    def __init__(self, path: str) -> None:
        self.path, self.pid = path, os.getpid()
        self._tracks: dict[str, int] = {}
        self._failed = False
        try:
            self._descriptor = _opened(path)
        except OSError as error:
            self._descriptor = -1
            self._warn(error)

    def write(self, name: str, track: str, start: int, end: int, fields: dict[str, Any]) -> None:
        if self._descriptor < 0:
            return
        lines = []
        if not self._tracks:
            program = os.path.basename(sys.orig_argv[0] if sys.orig_argv else sys.executable)
            lines.append(self._event("M", "process_name", 0, args={"name": program}))
        if track not in self._tracks:
            self._tracks[track] = FIRST_TRACK + len(self._tracks)
            lines.append(self._event("M", "thread_name", self._tracks[track], args={"name": track}))
        times = {"cat": "weightcast", "ts": start / 1e3, "dur": (end - start) / 1e3}
        lines.append(self._event("X", name, self._tracks[track], **times, args=fields))
        try:
            # One write: lines of several processes must not mix.
            os.write(self._descriptor, "".join(lines).encode())
        except OSError as error:
            self._warn(error)

    def _event(self, kind: str, name: str, track: int, **rest: Any) -> str:
        return json.dumps({"ph": kind, "name": name, "pid": self.pid, "tid": track, **rest}) + ",\n"

    def _warn(self, error: OSError) -> None:
        if not self._failed:
            log.warning("spans are missing in the trace file %s: %s", self.path, error)
        self._failed = True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _opened(path: str) -> int:
    """Whoever makes the file opens the array; this user alone reads it."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    os.write(descriptor, b"[\n")
    return descriptor
