"""The child processes: how they are started, join their group, are watched and are ended."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .samples import Samples
from .settings import Settings, Worker

LAST_LINES = 20
"""Lines of a child's output that are kept to be shown if it fails."""


class ChildFailed(Exception):
    """A child process ended before its work was done."""


@contextmanager
def join_group(worker: Worker) -> Iterator[Samples]:
    """In a child: joins the process group of its trainer or rollout, and connects to the hub."""
    torch.set_num_threads(1)  # the ranks share the cores
    wait = timedelta(seconds=worker.settings.timeout)
    store = dist.TCPStore("127.0.0.1", worker.rendezvous_port, timeout=wait)
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(worker.name, store),
        rank=worker.rank,
        world_size=worker.size,
        timeout=wait,
    )
    label = f"{worker.name}/{worker.rank}"
    samples = Samples(worker.samples_port, worker.token, label, worker.settings.timeout)
    try:
        yield samples
    finally:
        samples.close()
        dist.destroy_process_group()


class Child:
    """One child process and the last lines it wrote."""

    def __init__(self, role: str, worker: Worker, environment: dict[str, str]):
        self.name = f"{worker.name} rank {worker.rank}"
        self.role = role
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{role}"],
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
            self.children.append(Child(role, worker, self.environment))

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
        for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
            for child in self.children:
                if child.process.poll() is None:
                    end(child.process)
            deadline = time.monotonic() + 3
            for child in self.children:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, deadline - time.monotonic()))


def new_token() -> str:
    """A token nobody can guess."""
    return secrets.token_hex(16)
