"""Plain sockets: what somebody writes who knows how, in Python."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from .way import Place, Way, octets

BATCH_BYTES, BATCH_PARTS = 8 << 20, 1000
"""Of one system call; the kernel takes 1,024 parts at most."""
BUFFER = 4 << 20
"""Of a socket, in bytes."""


class Tcp(Way):
    """Each stream carries a stretch of the bytes, scattered from and into the tensors without a copy."""

    family: int = socket.AF_INET

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        self.streams = streams(place.readers)
        self.stretches = stretches([octets(tensor).data for tensor in tensors.values()], self.streams)
        self.sockets: list[socket.socket] = []
        self.threads = ThreadPoolExecutor(self.streams * (place.readers if place.sends else 1))
        self.listener: socket.socket | None = None

    def offer(self) -> Any:
        """Listens."""
        self.listener = socket.socket(self.family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.listener.bind(self._address())
        self.listener.listen(self.streams * self.place.readers)
        return self.listener.getsockname()

    def _address(self) -> Any:
        return ("127.0.0.1", 0)

    def join(self, offered: Any) -> None:
        """Connects."""
        for number in range(self.streams):
            stream = socket.socket(self.family, socket.SOCK_STREAM)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            stream.connect(offered)
            stream.sendall(bytes([number]))
            self.sockets.append(self._tuned(stream))

    def admit(self, joined: list[Any]) -> None:
        """Accepts: by its first byte it is known which stretch a stream carries."""
        assert self.listener is not None
        for _ in range(self.streams * self.place.readers):
            stream, _ = self.listener.accept()
            self.sockets.append(self._tuned(stream))

    def _tuned(self, stream: socket.socket) -> socket.socket:
        stream.settimeout(None)  # a socket with a time limit needs a second system call for each
        if self.family == socket.AF_INET:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def ready(self) -> None:
        """Sorts streams by the stretch that they carry."""
        if self.place.sends:
            self.numbers = [stream.recv(1)[0] for stream in self.sockets]
        else:
            self.numbers = list(range(self.streams))

    def send(self, version: int) -> None:
        """On all streams at once."""
        self._at_once(send_batch)

    def receive(self, version: int) -> None:
        """On all streams at once."""
        self._at_once(receive_batch)

    def _at_once(self, do: Any) -> None:
        def carry(stream: socket.socket, number: int) -> None:
            for batch in self.stretches[number]:
                do(stream, batch)

        list(self.threads.map(carry, self.sockets, self.numbers))

    def close(self) -> None:
        """Ends the streams."""
        self.threads.shutdown()
        for stream in [*self.sockets, *filter(None, [self.listener])]:
            stream.close()


class Unix(Tcp):
    """The same over sockets of this host alone."""

    family = socket.AF_UNIX

    def _address(self) -> str:
        return os.path.join(self.place.folder, "socket")


Batch = list[memoryview]


def streams(readers: int) -> int:
    """To each reader: as many as keep all cores at work, and no more."""
    return max(1, (os.cpu_count() or 1) // readers)


def stretches(parts: Batch, count: int) -> list[list[Batch]]:
    """The same bytes in so many stretches of one size, each in batches."""
    total, cut = sum(part.nbytes for part in parts), list[list[Batch]]()
    waiting = iter(pieces(parts, [total * (n + 1) // count - total * n // count for n in range(count)]))
    for stretch in waiting:
        cut.append(list(batches(stretch)))
    return cut


def pieces(parts: Batch, sizes: list[int]) -> Iterator[Batch]:
    """The parts, cut where a stretch of a size ends."""
    left = list(reversed(parts))
    for size in sizes:
        stretch: Batch = []
        while size:
            part = left.pop()
            if part.nbytes > size:
                left.append(part[size:])
                part = part[:size]
            stretch.append(part)
            size -= part.nbytes
        yield stretch


def batches(parts: Batch) -> Iterator[Batch]:
    """Parts in batches that a system call takes; large parts are cut."""
    batch: Batch = []
    filled = 0
    for part in parts:
        for at in range(0, part.nbytes, BATCH_BYTES):
            piece = part[at : at + BATCH_BYTES]
            if batch and (filled + piece.nbytes > BATCH_BYTES or len(batch) == BATCH_PARTS):
                yield batch
                batch, filled = [], 0
            batch.append(piece)
            filled += piece.nbytes
    if batch:
        yield batch


def send_batch(stream: socket.socket, batch: Batch) -> None:
    """All of it."""
    while batch := after(batch, stream.sendmsg(batch)):
        pass


def receive_batch(stream: socket.socket, batch: Batch) -> None:
    """All of it."""
    while batch:
        received = stream.recvmsg_into(batch, 0, socket.MSG_WAITALL)[0]
        if not received:
            raise ConnectionError("the sender ended")
        batch = after(batch, received)


def after(batch: Batch, done: int) -> Batch:
    """What is left of a batch behind so many bytes."""
    for number, part in enumerate(batch):
        if done < part.nbytes:
            return [part[done:], *batch[number + 1 :]]
        done -= part.nbytes
    return []
