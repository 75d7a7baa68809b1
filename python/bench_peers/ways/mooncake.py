"""Mooncake's transfer engine over TCP."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from .absent import missing
from .way import Place, Way, places

BATCH = 2048
"""Tensors of one call: 5,000 fail."""


class Mooncake(Way):
    """The sender writes into the readers' registered memory, one thread for each, and rings."""

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        from mooncake.engine import TransferEngine

        self.engine: Any = TransferEngine()
        expect(self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), "initialize")
        addresses, sizes = map(list, zip(*places(tensors), strict=True))
        expect(self.engine.batch_register_memory(addresses, sizes), "batch_register_memory")
        self.addresses, self.sizes = addresses, sizes
        self.peers: list[tuple[str, list[int]]] = []
        self.threads = ThreadPoolExecutor(place.readers)

    def join(self, offered: Any) -> Any:
        """Where the tensors are."""
        return f"127.0.0.1:{self.engine.get_rpc_port()}", self.addresses

    def admit(self, joined: list[Any]) -> None:
        """Remembers it."""
        self.peers = joined

    def send(self, version: int) -> None:
        """To all readers at once."""
        list(self.threads.map(self._write, self.peers))
        self.place.ring()

    def _write(self, peer: tuple[str, list[int]]) -> None:
        where, there = peer
        for at in range(0, len(there), BATCH):
            here = slice(at, at + BATCH)
            done = self.engine.batch_transfer_sync_write(
                where, self.addresses[here], there[here], self.sizes[here]
            )
            expect(done, "batch_transfer_sync_write")

    def receive(self, version: int) -> None:
        """Waits for the ring."""
        self.place.heard()

    def close(self) -> None:
        """Lets go of the memory."""
        self.threads.shutdown()
        self.engine.batch_unregister_memory(self.addresses)

    @staticmethod
    def lacking() -> str | None:
        """Its package, or Debian's libibverbs1, which that needs even without RDMA."""
        return missing("mooncake.engine")


def expect(code: int, call: str) -> None:
    """Mooncake's calls return 0, or a number that says little."""
    if code:
        raise RuntimeError(f"Mooncake: {call} returned {code}")
