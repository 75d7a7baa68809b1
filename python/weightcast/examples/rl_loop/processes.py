"""The child processes: how they are started, join their group, are watched and are ended."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .samples import Samples
from .settings import Settings, Worker

Rank = tuple[str, int, int]
"""Name of the group, rank in it, its size."""

LAST_LINES = 20
"""Lines of a child's output that are kept to be shown if it fails."""


class ChildFailed(Exception):
    """A child process ended before its work was done."""


@contextmanager
def join_group(worker: Worker) -> Iterator[Samples]:
    """In a child: joins the process group of its trainer or rollout, and connects to the hub."""
    timeout = worker.settings.timeout
    with process_group((worker.name, worker.rank, worker.size), worker.rendezvous_port, timeout):
        label = f"{worker.name}/{worker.rank}"
        samples = Samples(worker.samples_port, worker.token, label, timeout)
        try:
            yield samples
        finally:
            samples.close()


@contextmanager
def process_group(me: Rank, rendezvous_port: int, timeout: float) -> Iterator[None]:
    """In a child: the process group of all ranks of that name; waits take `timeout` seconds at most."""
    torch.set_num_threads(1)  # the ranks share the cores
    name, rank, size = me
    wait = timedelta(seconds=timeout)
    store = dist.TCPStore("127.0.0.1", rendezvous_port, timeout=wait)
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(name, store), rank=rank, world_size=size, timeout=wait
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


class Told(Protocol):
    """What a child is told when it is started: who it is, and the rest as variables."""

    @property
    def name(self) -> str:
        """Of its trainer or rollout."""

    @property
    def rank(self) -> int:
        """Which of its processes."""

    def to_environment(self) -> dict[str, str]:
        """The variables to start the child with."""


class Child:
    """One child process and the last lines it wrote."""

    def __init__(self, module: str, role: str, worker: Told, environment: dict[str, str]):
        self.name = f"{worker.name} rank {worker.rank}"
        self.role = role
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=os.environ | environment | worker.to_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends its children
        )
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def failure(self) -> str | None:
        """Why the child failed; None if it runs or has done its work."""
        code = self.process.poll()
        if not code:
            return None
        self.reader.join(timeout=1)
        killed = code < 0
        how = f"was killed by {signal.Signals(-code).name}" if killed else f"ended with code {code}"
        return "\n".join([f"{self.name} {how}", *(f"  | {line}" for line in self.lines)])

    def _read(self) -> None:
        assert self.process.stdout is not None  # a pipe
        for line in self.process.stdout:
            self.lines.append(line.rstrip())


class Children:
    """All child processes of a run. Leaving the context ends those that still run."""

    def __init__(self, settings: Settings, server_address: str, samples_port: int, token: str):
        self.settings, self.samples_port, self.token = settings, samples_port, token
        self.environment = {"WEIGHTCAST_SERVER": server_address, "GLOO_SOCKET_IFNAME": "lo"}
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.children: list[Child] = []

    def start(self, role: str, name: str, size: int) -> None:
        """Starts the `size` ranks of a trainer or a rollout."""
        for rank in range(size):
            ports = self.samples_port, self.store.port
            worker = Worker(name, rank, size, self.settings, self.token, *ports)
            self.children.append(Child(f"{__package__}.{role}", role, worker, self.environment))

    def wait(self, role: str) -> None:
        """Waits until every child of a role has done its work. Raises `ChildFailed`."""
        while any(c.process.poll() is None for c in self.children if c.role == role):
            self._check()
            time.sleep(0.05)
        self._check()

    def _check(self) -> None:
        failures = [why for child in self.children if (why := child.failure())]
        if failures:
            raise ChildFailed("\n".join(failures))

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *args: Any) -> None:
        end(self.children)


def end(children: Iterable[Child]) -> None:
    """Ends those that still run: politely, then not."""
    for how in (subprocess.Popen.terminate, subprocess.Popen.kill):
        running = [child for child in children if child.process.poll() is None]
        for child in running:
            how(child.process)
        deadline = time.monotonic() + 3
        for child in running:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))


def new_token() -> str:
    """A token nobody can guess."""
    return secrets.token_hex(16)
