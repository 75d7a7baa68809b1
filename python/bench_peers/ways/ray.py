"""Ray's objects: the sender puts tensors into shared memory, readers get them and copy them out."""

from typing import Any

import numpy as np
from torch import Tensor

from .absent import missing
from .way import Place, Way, octets

SMALL = 1 << 20
"""Bytes below which tensors are packed into one array: Ray spends more on a small one than its copy."""


class RayObjects(Way):
    """Each process is a driver of one Ray, which the sender starts. An actor hands references over."""

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        import ray

        self.ray: Any = ray
        self.held: Any = None
        parts = [octets(tensor) for tensor in tensors.values()]
        self.small = [part for part in parts if part.size < SMALL]
        self.large = [part for part in parts if part.size >= SMALL]

    def offer(self) -> str:
        """Starts Ray, with room for two versions."""
        from bench_rl.ways.ray import started

        size = sum(tensor.nbytes for tensor in self.tensors.values())
        address = started(self.ray, 2 * size + (256 << 20))
        self._board()
        return address

    def join(self, offered: str) -> None:
        """A driver more."""
        from bench_rl.ways.ray import BOARD

        self.ray.init(address=offered, log_to_driver=False, namespace=BOARD)
        self._board()

    def _board(self) -> None:
        from bench_rl.ways.ray import BOARD, Board

        board = self.ray.remote(num_cpus=0)(Board)
        self.board = board.options(name=BOARD, get_if_exists=True).remote()
        self.ray.get(self.board.__ray_ready__.remote())

    def send(self, version: int) -> None:
        """One object of all large tensors as they are, and the small ones in one array."""
        packed = [np.concatenate(self.small)] if self.small else []
        self.held = self.ray.put([*packed, *self.large])
        self.ray.get(self.board.show.remote(version, [self.held]))
        self.place.heard()

    def receive(self, version: int) -> None:
        """Copies them out of shared memory."""
        (reference,) = self.ray.get(self.board.shown.remote(version), timeout=self.place.timeout)
        arrays = self.ray.get(reference, timeout=self.place.timeout)
        if self.small:
            packed, arrays, at = arrays[0], arrays[1:], 0
            for part in self.small:
                part[:] = packed[at : at + part.size]
                at += part.size
        for part, array in zip(self.large, arrays, strict=True):
            part[:] = array
        self.place.ring()

    def tidy(self) -> None:
        """Lets the object go, so that the next one finds memory that was touched before."""
        if self.place.sends and self.held is not None:
            self.ray.get(self.board.show.remote(0, []))
            self.held = None

    def close(self) -> None:
        """Leaves, and ends what it started."""
        self.ray.shutdown()

    @staticmethod
    def lacking() -> str | None:
        """Ray."""
        return missing("ray")
