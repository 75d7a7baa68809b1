"""One way, in its own environment: forks a sender and readers for each measure, prints what came of it."""

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch  # before the forks: each would take seconds for it  # noqa: F401

from .cases import CASES, size
from .content import Content
from .meter import MIB, Peak, cpu_seconds, memory_mib
from .processes import adopt, descendants, die_with, end_below
from .ways import find
from .ways.way import Place
from .worker import Worker, work

LEAD = 0.05
"""Seconds in which an order reaches all processes, so that they begin together."""
LAST_LINES = 6
PATIENCE = 3
"""Time limits of a way: Ray tries to start three times."""
SPARE = 0.8
"""The part of the free memory that a measure may take."""


class Failed(Exception):
    """A process ended, was silent, or said why it cannot."""


class WrongBytes(Exception):
    """A reader holds something else than the version."""


@dataclass(frozen=True)
class Task:
    """What is to be measured of a way."""

    way: str
    case: str
    readers: int
    repeats: int
    #: After so many seconds of transfers there is no further one.
    enough: float
    timeout: float
    disk: str


class Crew:
    """The processes of one measure: the sender first."""

    def __init__(self, task: Task, content: Content, folder: str) -> None:
        self.task, self.folder = task, folder
        pairs = [Pipe() for _ in range(task.readers)]
        self.orders: list[Connection] = []
        self.pids: list[int] = []
        #: Descriptors that tell when a worker has ended: what it has forked may hold its pipe.
        self.ends: list[int] = []
        for rank in range(task.readers + 1):
            wires = [pair[0] for pair in pairs] if rank == 0 else [pairs[rank - 1][1]]
            place = Place(rank - 1 if rank else None, task.readers, folder, task.timeout, wires)
            self._fork(Worker(place, CASES[task.case].shapes(), content, task.way))

    def _fork(self, worker: Worker) -> None:
        ours, theirs = Pipe()
        host = os.getpid()
        if pid := os.fork():
            theirs.close()
            self.orders.append(ours)
            self.pids.append(pid)
            self.ends.append(os.pidfd_open(pid))
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work(worker, theirs, host, self._log(worker.place.rank))

    def _log(self, rank: int) -> str:
        return os.path.join(self.folder, f"{rank}.log")

    @property
    def sender(self) -> list[int]:
        """Its rank, as a list."""
        return [0]

    @property
    def readers(self) -> list[int]:
        """Their ranks."""
        return list(range(1, len(self.pids)))

    @property
    def all(self) -> list[int]:
        """All ranks."""
        return list(range(len(self.pids)))

    def order(self, do: str, ranks: list[int], **arguments: Any) -> list[Any]:
        """Has some do something at once; their answers."""
        for rank in ranks:
            self.orders[rank].send((do, arguments))
        came: dict[int, Any] = {}
        # Ways have time limits of their own, which say more.
        patience = PATIENCE * self.task.timeout
        deadline = time.monotonic() + patience
        while silent := [rank for rank in ranks if rank not in came]:
            awaited = [each[rank] for rank in silent for each in (self.orders, self.ends)]
            heard = wait(awaited, max(0.0, deadline - time.monotonic()))
            if not heard:
                raise Failed(f"no answer to {do} within {patience:g} s: {self._names(silent)}")
            for rank in silent:
                if self.orders[rank] in heard or self.ends[rank] in heard:
                    came[rank] = self._answer(do, rank)
        return [came[rank] for rank in ranks]

    def _answer(self, do: str, rank: int) -> Any:
        try:
            answer = self.orders[rank].recv() if self.orders[rank].poll() else None
        except (EOFError, OSError):
            answer = None
        if answer is None:
            raise Failed(f"{self._names([rank])} ended in {do}{self._last_words(rank)}")
        if why := answer.get("failed"):
            raise Failed(f"{self._names([rank])}: {why}{self._last_words(rank)}")
        return answer["came"]

    def _names(self, ranks: list[int]) -> str:
        return ", ".join(f"reader {rank - 1}" if rank else "the sender" for rank in ranks)

    def _last_words(self, rank: int) -> str:
        try:
            lines = Path(self._log(rank)).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "".join(f" | {line}" for line in lines[-LAST_LINES:])

    def close(self) -> None:
        """Closes what tells of workers."""
        for descriptor in self.ends:
            os.close(descriptor)
        for pipe in self.orders:
            pipe.close()

    def beside(self) -> list[int]:
        """Processes that workers have started, such as Ray's."""
        return [pid for pid in descendants(os.getpid()) if pid not in self.pids]

    def processes(self) -> list[int]:
        """All that a way takes."""
        return [*self.pids, *self.beside()]


def measure(task: Task, content: Content) -> dict[str, Any]:
    """Set-up, one transfer that does not count, and those that do."""
    needed, free = size(CASES[task.case].shapes()) * (task.readers + 1), available()
    if needed > SPARE * free:
        raise Failed(f"would take {needed / MIB:,.0f} MiB of {free / MIB:,.0f} that are free")
    with tempfile.TemporaryDirectory(prefix="bench-peers-", dir=task.disk) as folder:
        crew = Crew(task, content, folder)
        try:
            return asdict(task) | {"bytes": size(CASES[task.case].shapes())} | transfers(crew)
        finally:
            end_below()
            crew.close()


def transfers(crew: Crew) -> dict[str, Any]:
    """All transfers of a crew."""
    crew.order("allocate", crew.all)
    before = memory_mib(crew.processes())
    peak = Peak(crew.processes)
    set_up_s = set_up(crew)
    with peak.looking():
        moved = transfer(crew, 1)
    first_s, spent, repeats = moved["seconds"], 0.0, list[dict[str, float]]()
    while len(repeats) < crew.task.repeats and (spent < crew.task.enough or not repeats):
        repeats.append(transfer(crew, len(repeats) + 2))
        spent += repeats[-1]["seconds"]
    peak.look()
    crew.order("close", crew.readers)
    crew.order("close", crew.sender)
    return {
        "set_up_s": set_up_s,
        "first_s": first_s,
        "transfers": repeats,
        "extra_mib": max(0.0, peak.mib - before),
    }


def set_up(crew: Crew) -> float:
    """All steps of a way's set-up; how long they took."""
    began = time.monotonic()
    crew.order("make", crew.all)
    (offered,) = crew.order("offer", crew.sender)
    joined = crew.order("join", crew.readers, offered=offered)
    crew.order("admit", crew.sender, joined=joined)
    crew.order("ready", crew.all)
    return time.monotonic() - began


def transfer(crew: Crew, version: int) -> dict[str, float]:
    """One, with every byte of every reader compared after it."""
    crew.order("fill", crew.sender, version=version)
    others = cpu_seconds(crew.beside())
    at = time.monotonic() + LEAD
    ended = [answer["ended"] for answer in crew.order("move", crew.all, version=version, at=at)]
    cpu_s = sum(crew.order("count", crew.all)) + cpu_seconds(crew.beside()) - others
    for reader, wrong in enumerate(crew.order("compare", crew.readers, version=version)):
        if wrong:
            raise WrongBytes(f"{crew.task.way}, {crew.task.case}: reader {reader} does not hold {wrong}")
    crew.order("tidy", crew.all)
    return {"seconds": max(ended[1:]) - at, "sender_s": ended[0] - at, "cpu_s": max(0.0, cpu_s)}


def available() -> int:
    """Bytes that can still be had."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def stop(number: int, _: Any) -> None:
    """Ends with everything below."""
    end_below()
    os._exit(128 + number)


def main() -> None:
    """Reads tasks, a line of JSON each, and prints a line for each."""
    die_with(int(sys.argv[1]))
    adopt()
    signal.signal(signal.SIGTERM, stop)
    content = Content()
    for line in sys.stdin:
        task = Task(**json.loads(line))
        try:
            lacking = find(task.way).lacking()
            came = {"not_run": lacking} if lacking else measure(task, content)
        except WrongBytes as error:
            came = {"wrong": str(error)}
        except Failed as error:
            came = {"not_run": str(error)}
        print(json.dumps(came), flush=True)


if __name__ == "__main__":
    main()
