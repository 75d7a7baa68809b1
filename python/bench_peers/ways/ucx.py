"""UCX by its package ucxx: a message with a tag for each tensor, straight into the readers' tensors."""

import time
from typing import Any

from torch import Tensor

from .absent import missing
from .way import Place, Way, octets

HELLO = 1 << 32
"""The tag of the message that sets a connection up."""


class Ucx(Way):
    """UCX's own choice of transports, or those of UCX_TLS."""

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        import numpy as np
        from ucxx._lib import libucxx
        from ucxx._lib.arr import Array
        from ucxx.types import Tag, TagMaskFull

        self.api: Any = libucxx
        self.tag, self.mask = Tag, TagMaskFull
        features = (libucxx.Feature.TAG, libucxx.Feature.WAKEUP)
        self.context = libucxx.UCXContext(feature_flags=features)
        self.worker = libucxx.UCXWorker(self.context)
        self.worker.init_blocking_progress_mode()
        self.arrays = [Array(octets(tensor)) for tensor in tensors.values()]
        self.hello = Array(np.zeros(8, dtype=np.uint8))
        self.peers: list[Any] = []

    def offer(self) -> Any:
        """This worker's address."""
        return bytes(self.worker.address)

    def join(self, offered: Any) -> Any:
        """Connects to the sender."""
        self._connect(offered)
        return bytes(self.worker.address)

    def admit(self, joined: list[Any]) -> None:
        """Connects to all readers."""
        for address in joined:
            self._connect(address)

    def _connect(self, address: bytes) -> None:
        there = self.api.UCXAddress.create_from_buffer(address)
        self.peers.append(
            self.api.UCXEndpoint.create_from_worker_address(self.worker, there, endpoint_error_handling=False)
        )

    def ready(self) -> None:
        """One small message, so that all connections are made."""
        if self.place.sends:
            self._finish([peer.tag_send(self.hello, self.tag(HELLO)) for peer in self.peers])
        else:
            self._finish([self.peers[0].tag_recv(self.hello, self.tag(HELLO), self.mask)])

    def send(self, version: int) -> None:
        """All tensors to all readers."""
        tags = range(len(self.arrays))
        self._finish(
            [
                peer.tag_send(array, self.tag(tag))
                for tag, array in zip(tags, self.arrays, strict=True)
                for peer in self.peers
            ]
        )

    def receive(self, version: int) -> None:
        """All tensors."""
        (peer,) = self.peers
        tags = range(len(self.arrays))
        self._finish(
            [
                peer.tag_recv(array, self.tag(tag), self.mask)
                for tag, array in zip(tags, self.arrays, strict=True)
            ]
        )

    def _finish(self, requests: list[Any]) -> None:
        """Sleeps in the kernel while nothing moves: spinning takes a core from the others."""
        end = time.monotonic() + self.place.timeout
        for request in requests:
            while not request.completed:
                self.worker.progress_worker_event(100)
                if time.monotonic() > end:
                    raise TimeoutError("UCX: a message did not arrive")
            request.check_error()

    @staticmethod
    def lacking() -> str | None:
        """Its package."""
        return missing("ucxx")
