"""All processes of a run: started on their hosts, given orders together, ended together."""

import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .hosts import Loopback, hosts
from .model import Shapes, expected, qwen
from .settings import BenchSettings
from .ways import Place

LAST_LINES = 20


class BenchFailed(Exception):
    """A process ended, took too long, said that it failed, or holds wrong bytes."""


class Process:
    """A child that answers each line with a line; all answers of a crew arrive in one queue."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str], answers: "Answers"
    ) -> None:
        self.name = name
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends its children
        )
        self.threads = [threading.Thread(target=self._hear, args=(answers,), daemon=True)]
        self.threads.append(threading.Thread(target=self._keep, daemon=True))
        for thread in self.threads:
            thread.start()

    def tell(self, what: dict[str, Any]) -> None:
        """Gives an order."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # that it ended is heard elsewhere
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()

    def last_words(self) -> str:
        """What it wrote last, for people."""
        self.threads[1].join(timeout=1)
        how = f"{self.name} ended, code {self.process.wait()}"
        return "\n".join([how, *(f"  | {line}" for line in self.lines)])

    def _hear(self, answers: "Answers") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self, line))
        answers.put((self, None))

    def _keep(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())


Answers = queue.Queue[tuple[Process, str | None]]
"""Lines of processes; None when one has ended."""


class Crew:
    """Trainers and rollouts, and what they meet at."""

    def __init__(self, settings: BenchSettings, where: Loopback, disk: str) -> None:
        self.settings, self.where = settings, where
        self.shapes: Shapes = qwen(settings.layers, settings.hidden, settings.vocab)
        self.answers: Answers = queue.Queue()
        self.processes: list[Process] = []
        self.versions = self.openings = 0
        #: By which the processes know the Ray that one of them starts.
        self.ray_token = secrets.token_hex(32)
        try:
            self._start(disk)
        except BaseException:
            self.end()
            raise

    def _start(self, disk: str) -> None:
        links = "links" if self.where.rate else "loopback"
        arguments = [self.where.server_address, links, str(self.settings.rollouts)]
        self.services = self._process("services", "services", None, arguments)
        (met,) = self.gather([self.services])
        everyone = range(self.settings.trainers + self.settings.ends)
        self.places = [self._place(rank, disk, **met) for rank in everyone]
        self.workers = [
            self._process(self.name(place), "worker", self._host(place.rank), []) for place in self.places
        ]
        for worker, place in zip(self.workers, self.places, strict=True):
            worker.tell(asdict(place))
        self.gather(self.workers)

    def _host(self, rank: int) -> int:
        return rank // self.settings.per_host

    def _place(self, rank: int, disk: str, store: tuple[str, int], servers: dict[str, str]) -> Place:
        settings = self.settings
        trains = rank < settings.trainers
        return Place(
            role="trainer" if trains else "rollout",
            index=rank if trains else rank - settings.trainers,
            rank=rank,
            trainers=settings.trainers,
            rollouts=settings.rollouts,
            rollout_tp=settings.rollout_tp,
            trainer=settings.trainer,
            shapes=self.shapes,
            address=self.where.address(self._host(rank)),
            interface=self.where.interface(),
            lane=settings.lane,
            store=store,
            servers=servers,
            disk=disk,
            per_host=settings.per_host,
            timeout=settings.timeout,
        )

    def _process(self, name: str, module: str, host: int | None, arguments: list[str]) -> Process:
        command = [*self.where.inside(host), sys.executable, "-m", f"{__package__}.{module}", *arguments]
        folder = str(Path(__file__).parent.parent)
        environment = {
            "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "GLOO_SOCKET_IFNAME": self.where.interface(),
            "OMP_NUM_THREADS": "1",  # the processes share the cores
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.ray_token,
        }
        self.processes.append(Process(name, command, environment, self.answers))
        return self.processes[-1]

    @staticmethod
    def name(place: Place) -> str:
        """Of a process, for people."""
        return f"{place.role}-{place.index}"

    def order(self, do: str, to: Iterable[Process] | None = None, **arguments: Any) -> list[dict[str, Any]]:
        """Has all do something; their answers, in the order of ranks."""
        told = self.workers if to is None else list(to)
        for worker in told:
            worker.tell({"do": do, **arguments})
        return self.gather(told)

    @property
    def trainers(self) -> list[Process]:
        """The trainers' processes."""
        return self.workers[: self.settings.trainers]

    @property
    def rollouts(self) -> list[Process]:
        """The rollouts' processes."""
        return self.workers[self.settings.trainers :]

    def gather(self, told: list[Process]) -> list[dict[str, Any]]:
        """An answer from each. Raises `BenchFailed` with the first that fails."""
        heard: dict[str, dict[str, Any]] = {}
        # Ways have deadlines of their own, which say more.
        deadline = time.monotonic() + 2 * self.settings.timeout
        while len(heard) < len(told):
            try:
                process, line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                silent = ", ".join(each.name for each in told if each.name not in heard)
                raise BenchFailed(f"no answer within --timeout, twice: {silent}") from None
            if line is None:
                raise BenchFailed(process.last_words())
            heard[process.name] = json.loads(line)
            if why := heard[process.name].get("failed"):
                raise BenchFailed(f"{process.name}: {why}")
        return [heard[each.name] for each in told]

    def server_cpu(self) -> float:
        """Processor seconds of the services."""
        (answer,) = self.order("cpu", [self.services])
        return float(answer["cpu_s"])

    def verify(self, version: int) -> int:
        """Compares every tensor of every rollout with what the version is. How many were compared."""
        answers = self.order("digests", self.rollouts)
        wanted: dict[int, dict[str, str]] = {}
        compared = 0
        for place, answer in zip(self.places[self.settings.trainers :], answers, strict=True):
            shard = place.shard[0]
            if shard not in wanted:
                wanted[shard] = expected(place.pieces(), version)
            found = answer["digests"]
            if wrong := [name for name, digest in wanted[shard].items() if found.get(name) != digest]:
                more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
                raise BenchFailed(f"{self.name(place)} does not hold version {version}: {wrong[0]}{more}")
            compared += len(found)
        return compared

    def end(self) -> None:
        """Ends all processes."""
        for each in self.processes:
            each.process.kill()
        for each in self.processes:
            each.process.wait()


@contextmanager
def crew(settings: BenchSettings) -> Iterator[Crew]:
    """A crew on hosts of its own; all of it is gone afterwards."""
    count = -(-(settings.trainers + settings.ends) // settings.per_host)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        hosts(settings.links, count, settings.rate) as where,
        tempfile.TemporaryDirectory(prefix="bench-rl-", dir=settings.disk or memory) as disk,
    ):
        running = Crew(settings, where, disk)
        try:
            yield running
        finally:
            running.end()
