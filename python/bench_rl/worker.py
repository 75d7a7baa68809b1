"""One trainer, or one rank of a rollout: a process that takes orders as lines of JSON, and answers each."""

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any

import torch

from .meter import Peak, counts
from .model import Memory
from .ways import Place, Task, Way, find

PR_SET_PDEATHSIG = 1


class Worker:
    """Memory of a model's rows, and at most one way that moves them. Its methods are the orders."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.trains = place.role == "trainer"
        self.memory = Memory(place.pieces())
        self.buffer: Memory | None = None
        self.way: Way | None = None
        self.peak = Peak()
        self.before = counts(place.interface)

    def open(self, way: str, task: dict[str, Any], staged: bool) -> dict[str, Any]:
        """Sets a way up. Staged, it works on memory beside the model's."""
        self.peak = Peak()
        began = time.monotonic()
        self.buffer = Memory(self.memory.pieces) if staged else None
        self.way = find(way)(self.place, self.buffer or self.memory, Task(**task))
        return {"seconds": time.monotonic() - began}

    def fill(self, version: int) -> dict[str, Any]:
        """A trainer's optimizer step."""
        self.memory.fill(version)
        return {}

    def update(self, version: int, at: float, busy: float) -> dict[str, Any]:
        """This process's part in an update that begins at a moment; a rollout may be busy from then on for a
        while. The stall is from `began` to `ended`."""
        assert self.way is not None
        self.before = counts(self.place.interface)
        sleep_until(at)
        part = self._send if self.trains else self._receive
        return part(self.way, version, at + busy)

    def _send(self, way: Way, version: int, _: float) -> dict[str, Any]:
        began = time.monotonic()
        if self.buffer:
            self.buffer.take(self.memory)
            ended = time.monotonic()
            way.send(version)
            return {"began": began, "ended": ended}
        way.send(version)
        return {"began": began, "ended": time.monotonic()}

    def _receive(self, way: Way, version: int, free_at: float) -> dict[str, Any]:
        if self.buffer:
            way.wait(version)
            way.receive(version)
            sleep_until(free_at)
            began = time.monotonic()
            self.memory.take(self.buffer)
        else:
            sleep_until(free_at)
            way.wait(version)
            began = time.monotonic()
            way.receive(version)
        return {"began": began, "ended": time.monotonic()}

    def count(self) -> dict[str, Any]:
        """What the last update has cost so far."""
        return counts(self.place.interface).since(self.before)

    def digests(self) -> dict[str, Any]:
        """Of all that it holds."""
        return {"digests": self.memory.digests()}

    def close(self) -> dict[str, Any]:
        """Ends the way."""
        if self.way:
            self.way.close()
        self.way = self.buffer = None
        return {"peak_mib": self.peak.mib()}


def sleep_until(moment: float) -> None:
    """Returns at a moment of the monotonic clock, which all processes of a machine share."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)


def main() -> None:
    """Takes orders until there are no more."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints is no answer
    torch.set_num_threads(1)
    worker = Worker(Place(**json.loads(sys.stdin.readline())))
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception as error:  # whatever a way raises; the run ends with it
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    os._exit(0)  # threads of libraries must not hold the process


def die_with_parent() -> None:
    """Has the kernel end this process when the one that started it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
