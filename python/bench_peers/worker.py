"""The sender, or one reader: a forked process that takes orders over a pipe, and answers each."""

import os
import time
from multiprocessing.connection import Connection
from typing import Any

import torch

from .cases import Shapes
from .content import Content
from .processes import die_with
from .ways import find
from .ways.way import Place, octets


class Worker:
    """The tensors, and the way that moves them. Its methods are the orders."""

    def __init__(self, place: Place, shapes: Shapes, content: Content, way: str) -> None:
        self.place, self.shapes, self.content, self.name = place, shapes, content, way

    def allocate(self) -> None:
        """Memory as a model has it: touched, of torch's allocator."""
        self.tensors = {
            name: torch.zeros(shape, dtype=torch.bfloat16).fill_(1) for name, shape in self.shapes.items()
        }

    def make(self) -> None:
        """Sets the way up as far as it can be without others."""
        self.way = find(self.name)(self.place, self.tensors)

    def offer(self) -> Any:
        """The sender's."""
        return self.way.offer()

    def join(self, offered: Any) -> Any:
        """A reader's."""
        return self.way.join(offered)

    def admit(self, joined: list[Any]) -> None:
        """The sender's."""
        self.way.admit(joined)

    def ready(self) -> None:
        """Of all at once."""
        self.way.ready()

    def fill(self, version: int) -> None:
        """The sender's: an optimizer's step."""
        for name, tensor in self.tensors.items():
            self.content.fill(octets(tensor), name, version)

    def move(self, version: int, at: float) -> dict[str, float]:
        """This process's part of a transfer that begins at a moment; when that was over."""
        self.before = time.process_time()
        while (left := at - time.monotonic()) > 0:
            time.sleep(left)
        (self.way.send if self.place.sends else self.way.receive)(version)
        return {"ended": time.monotonic()}

    def count(self) -> float:
        """Processor seconds since the transfer began."""
        return time.process_time() - self.before

    def compare(self, version: int) -> str | None:
        """A reader's: the first byte that is not the version's."""
        for name, tensor in self.tensors.items():
            at = self.content.wrong(octets(tensor), name, version)
            if at is not None:
                return f"byte {at} of {tensor.nbytes} of {name}"
        return None

    def tidy(self) -> None:
        """After a transfer."""
        self.way.tidy()

    def close(self) -> None:
        """Lets go of everything."""
        self.way.close()


def work(worker: Worker, orders: Connection, host: int, log: str) -> None:
    """Takes orders until there are no more. Never returns."""
    die_with(host)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    torch.set_num_threads(1)
    try:
        while order := orders.recv():
            do, arguments = order
            try:
                answer = {"came": getattr(worker, do)(**arguments)}
            except Exception as error:  # whatever a way raises: the measure ends with it
                answer = {"failed": f"{type(error).__name__}: {error}"}
            orders.send(answer)
    finally:
        os._exit(0)  # threads of libraries must not hold the process
