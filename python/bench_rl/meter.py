"""What a process counts: processor seconds, bytes of its host's link, and memory."""

import ctypes
import gc
import re
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Counts:
    """Sums since the process, or its host, began."""

    cpu_s: float
    sent: int
    received: int

    def since(self, earlier: "Counts") -> dict[str, float]:
        """What has come since then."""
        before = asdict(earlier)
        return {name: value - before[name] for name, value in asdict(self).items()}


def counts(interface: str) -> Counts:
    """As they stand now."""
    received, sent = link(Path("/proc/self/net/dev").read_text(), interface)
    return Counts(time.process_time(), sent, received)


def link(table: str, interface: str) -> tuple[int, int]:
    """Bytes received and sent, of the kernel's table."""
    for line in table.splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == interface:
            fields = numbers.split()
            return int(fields[0]), int(fields[8])
    raise ValueError(f"no interface {interface!r}")


class Peak:
    """How far resident memory rises above what it is at first."""

    def __init__(self) -> None:
        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # what earlier ways have freed is no part of this one
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
        self.first = resident("VmRSS")

    def mib(self) -> float:
        """So far."""
        return max(0.0, resident("VmHWM") - self.first)


def resident(what: str) -> float:
    """MiB of `VmRSS`, `VmHWM`."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 / MIB if found else 0.0
