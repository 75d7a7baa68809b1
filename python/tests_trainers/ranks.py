"""Ranks as processes, forked from one that has imported the trainer's library, and a server beside them."""

import multiprocessing
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

#: Seconds in which everything must have happened, on a busy machine too.
SOON = 120.0

_fork = multiprocessing.get_context("fork")
_spawn = multiprocessing.get_context("spawn")


class Served:
    """`weightcast serve` in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "weightcast", "serve", "--address", "127.0.0.1:0"]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = re.search(r"http://\S+", self._child.stdout.readline())[0]

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        self._child.stdout.close()


class Process:
    """A process that runs `program(say, hear, ...)`; `say` and `hear` talk to the test. A program that is a
    module's name is that module's `run`, in a process that has imported nothing yet."""

    def __init__(self, program: Callable | str, *arguments: Any) -> None:
        context = _spawn if isinstance(program, str) else _fork
        self._here, there = context.Pipe()
        self._child = context.Process(target=_run, args=(there, program, arguments), daemon=True)
        self._child.start()
        there.close()

    def tell(self, message: Any) -> None:
        self._here.send(message)

    def told(self) -> Any:
        """What it says next. Its error fails the test."""
        assert self._here.poll(SOON), "a process says nothing"
        kind, value = self._here.recv()
        assert kind == "said", value
        return value

    def end(self) -> None:
        self._child.kill()
        self._child.join()
        self._here.close()


def _run(there: Connection, program: Callable | str, arguments: tuple) -> None:
    try:
        torch.set_num_threads(1)
        if isinstance(program, str):
            program = import_module(program).run
        program(lambda value: there.send(("said", value)), there.recv, *arguments)
    except BaseException:
        there.send(("failed", traceback.format_exc()))


def tell(ranks: list[Process], message: Any) -> None:
    """Tells all of them."""
    for rank in ranks:
        rank.tell(message)


def join(rank: int, world: int, rendezvous: str) -> None:
    """Makes this process one of a gloo job."""
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
