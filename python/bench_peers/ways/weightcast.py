"""weightcast: the sender publishes, readers update."""

from typing import Any

from torch import Tensor, nn

import weightcast as wc
from weightcast.torch import share_

from .way import Place, Way

MODEL = "bench-peers"
LEASE = 30.0
"""Seconds: a machine that others use too must not cost a process its place."""


class Direct(Way):
    """As a user has it: the way that weightcast chooses between processes of one host."""

    lane = "auto"

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        self.server: wc.Server | None = None
        self.handle: wc.Handle | None = None

    def offer(self) -> str:
        """A reference server, in this process."""
        self.server = wc.serve("127.0.0.1:0", lease=LEASE)
        self._open(self.server.address)
        return self.server.address

    def join(self, offered: str) -> None:
        """Registers the tensors."""
        self._open(offered)

    def _open(self, server: str) -> None:
        self.handle = wc.open(
            MODEL,
            wc.Replica(f"process-{self.place.rank}"),
            role="trainer" if self.place.sends else "rollout",
            epoch="new" if self.place.sends else "current",
            server=server,
            way=self.lane,
            deadline=self.place.timeout,
        )
        layout = wc.Layout()
        for name, tensor in self.tensors.items():
            layout.add(tensor, wc.part(name, shape=tuple(tensor.shape)))
        self.handle.register(layout, deadline=self.place.timeout)

    def send(self, version: int) -> None:
        """Until all readers have it."""
        handle, soon = self._handle, self.place.timeout
        handle.publish(version, deadline=soon)
        handle.wait(wc.held(version, by=self.place.readers), deadline=soon)
        handle.unpublish(deadline=soon)

    def receive(self, version: int) -> None:
        """As soon as it is there."""
        self._handle.wait(wc.available(version), deadline=self.place.timeout)
        self._handle.update(version, deadline=self.place.timeout)

    @property
    def _handle(self) -> Any:
        assert self.handle is not None
        return self.handle

    def close(self) -> None:
        """Leaves; the sender last."""
        self._handle.close(deadline=self.place.timeout)
        if self.server:
            self.server.close()


class Shared(Direct):
    """The same, where the sender has moved its tensors to memory that the host shares."""

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        if place.sends:
            names = list(tensors)
            # Whatever else refers to their memory keeps tensors where they are.
            held = nn.ParameterList(
                [nn.Parameter(tensors.pop(name), requires_grad=False) for name in names]
            )
            share_(held)
            tensors.update(zip(names, (own.data for own in held), strict=True))
        super().__init__(place, tensors)


class Tcp(Direct):
    """Over TCP, as between hosts."""

    lane = "tcp"
