"""Ranks as processes, forked from one that has imported vLLM, and a server beside them."""

import multiprocessing
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

#: Seconds in which everything must have happened, on a busy machine too.
SOON = 90.0

_fork = multiprocessing.get_context("fork")


class Server:
    """`weightcast serve` in a process of its own."""

    def __init__(self) -> None:
        self.address = "http://127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Again at the same address, once it is lost: a server that knows nothing."""
        command = [sys.executable, "-m", "weightcast", "serve", "--address", self.address.removeprefix("http://")]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = self._child.stdout.readline()
        self.address = re.search(r"http://\S+", said)[0]

    def lose(self) -> None:
        """Kills it."""
        self.stop()

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        self._child.stdout.close()


class Rank:
    """A process that runs `program(say, hear)`; `say` and `hear` talk to the test."""

    def __init__(self, program: Callable, *arguments: Any) -> None:
        self._here, there = _fork.Pipe()
        self._child = _fork.Process(target=_run, args=(there, program, arguments), daemon=True)
        self._child.start()
        there.close()

    def tell(self, message: Any) -> None:
        self._here.send(message)

    def told(self) -> Any:
        """What it says next. Its error fails the test."""
        assert self._here.poll(SOON), "a rank says nothing"
        kind, value = self._here.recv()
        assert kind == "said", value
        return value

    def end(self) -> None:
        self._child.kill()
        self._child.join()
        self._here.close()


def _run(there: Connection, program: Callable, arguments: tuple) -> None:
    try:
        program(lambda value: there.send(("said", value)), there.recv, *arguments)
    except BaseException:
        there.send(("failed", traceback.format_exc()))


def together(ranks: list[Rank], message: Any) -> list[Any]:
    """Tells all, then hears from all."""
    for rank in ranks:
        rank.tell(message)
    return [rank.told() for rank in ranks]
