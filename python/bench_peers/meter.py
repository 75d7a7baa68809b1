"""What processes cost: processor seconds and memory."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MIB = 1 << 20
NANO = 1e9
PERIOD = 0.01
"""Seconds between two looks at memory."""


def cpu_seconds(pids: list[int]) -> float:
    """Of all threads of other processes that live, by the scheduler's own count."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    total += int((thread / "schedstat").read_text().split()[0])
    return total / NANO


def memory_mib(pids: list[int]) -> float:
    """Of all of them together: what several share counts once (PSS)."""
    return sum(_kib(f"/proc/{pid}/smaps_rollup", "Pss") for pid in pids) * 1024 / MIB


def _kib(file: str, what: str) -> int:
    with suppress(OSError):
        if found := re.search(rf"^{what}:\s+(\d+) kB", Path(file).read_text(), re.MULTILINE):
            return int(found[1])
    return 0


class Peak:
    """The most memory that was seen at any look."""

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self.processes, self.mib = processes, 0.0

    def look(self) -> None:
        """Looks once."""
        self.mib = max(self.mib, memory_mib(self.processes()))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Looks all the time, beside what is done inside."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(PERIOD):
                self.look()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.look()
