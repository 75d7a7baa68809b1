"""What a way of moving tensors has to do, and what it is told."""

from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from ..content import Octets


@dataclass(frozen=True)
class Place:
    """Who a process is, and how a sender and a reader tell each other that something is there."""

    #: None: the sender.
    reader: int | None
    readers: int
    #: A folder of this measure alone, on a disk.
    folder: str
    timeout: float
    #: Of the sender, one to each reader; of a reader, one to the sender.
    wires: list[Connection] = field(default_factory=list)

    @property
    def sends(self) -> bool:
        """Whether this is the sender."""
        return self.reader is None

    @property
    def rank(self) -> int:
        """The sender is 0."""
        return 0 if self.reader is None else self.reader + 1

    def ring(self, what: bytes = b"!") -> None:
        """Tells the other side, or all of it."""
        for wire in self.wires:
            wire.send_bytes(what)

    def heard(self) -> list[bytes]:
        """Waits until the other side, or all of it, has rung."""
        return [self._heard(wire) for wire in self.wires]

    def _heard(self, wire: Connection) -> bytes:
        if not wire.poll(self.timeout):
            raise TimeoutError(f"the other side did not ring within {self.timeout:g} s")
        return wire.recv_bytes()


class Way:
    """One way of moving tensors, in one process.

    `tensors` are what bytes are taken from, or are to land in: allocated and touched before. Set-up is
    `offer` at the sender, `join` at all readers, `admit` at the sender, `ready` at all at once.
    """

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        self.place, self.tensors = place, tensors

    def offer(self) -> Any:
        """The sender's first step: what readers need to know."""

    def join(self, offered: Any) -> Any:
        """A reader's: what the sender needs to know of it."""

    def admit(self, joined: list[Any]) -> None:
        """The sender's second: all readers, in their order."""

    def ready(self) -> None:
        """What takes all at once."""

    def send(self, version: int) -> None:
        """The sender's part of a transfer. When it returns, the tensors may be changed."""
        raise NotImplementedError

    def receive(self, version: int) -> None:
        """A reader's: returns when all of the version is in its tensors."""
        raise NotImplementedError

    def tidy(self) -> None:
        """After a transfer, outside of the measured time: lets go of the version."""

    def close(self) -> None:
        """Lets go of everything."""

    @staticmethod
    def lacking() -> str | None:
        """Why this way cannot run here; None if it can."""
        return None


def octets(tensor: Tensor) -> Octets:
    """The same memory as a row of bytes."""
    found: Octets = tensor.view(torch.uint8).view(-1).numpy()
    return found


def places(tensors: dict[str, Tensor]) -> list[tuple[int, int]]:
    """Address and bytes of each."""
    return [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors.values()]
