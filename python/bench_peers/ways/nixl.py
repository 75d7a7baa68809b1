"""NIXL over UCX: one side writes into the other's registered memory, or reads from it."""

import time
from typing import Any

from torch import Tensor

from .absent import missing
from .way import Place, Way, places

LOOK = 0.00005
"""Seconds between two looks whether a transfer is over: to look without a pause takes a core."""


class Nixl(Way):
    """Transfers are prepared at set-up, and posted anew for each version."""

    progress_thread = True

    def __init__(self, place: Place, tensors: dict[str, Tensor]) -> None:
        super().__init__(place, tensors)
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        config = nixl_agent_config(enable_prog_thread=self.progress_thread, backends=["UCX"])
        self.agent: Any = nixl_agent(f"process-{place.rank}", config)
        memory = [(address, size, 0, "") for address, size in places(tensors)]
        self.registered = self.agent.register_memory(memory, "DRAM")
        self.transfers: list[Any] = []

    def card(self) -> Any:
        """What the other side needs to know."""
        return self.agent.get_agent_metadata(), places(self.tensors)

    def prepare(self, operation: str, card: Any) -> None:
        """A transfer of all tensors with one peer."""
        metadata, there = card
        peer = self.agent.add_remote_agent(metadata)
        peer = peer.decode() if isinstance(peer, bytes) else peer
        sides = [
            self.agent.prep_xfer_dlist(name, [(address, size, 0) for address, size in memory], "DRAM")
            for name, memory in (("NIXL_INIT_AGENT", places(self.tensors)), (peer, there))
        ]
        every = list(range(len(there)))
        self.transfers.append(
            self.agent.make_prepped_xfer(operation, sides[0], every, sides[1], every, b"done")
        )

    def move(self) -> None:
        """All transfers, until they are over."""
        states = [self.agent.transfer(each) for each in self.transfers]
        while any(state != "DONE" for state in states):
            if "ERR" in states:
                raise RuntimeError("NIXL: a transfer failed")
            time.sleep(LOOK)
            states = [self.agent.check_xfer_state(each) for each in self.transfers]

    def noticed(self, peers: int) -> None:
        """Waits until so many peers have said that their transfer is over."""
        end = time.monotonic() + self.place.timeout
        while peers > 0:
            peers -= sum(map(len, self.agent.get_new_notifs().values()))
            if time.monotonic() > end:
                raise TimeoutError("NIXL: no notification")
            if peers > 0:
                time.sleep(LOOK)

    def close(self) -> None:
        """Lets go of the memory."""
        for each in self.transfers:
            self.agent.release_xfer_handle(each)
        self.agent.deregister_memory(self.registered)

    @staticmethod
    def lacking() -> str | None:
        """Its package."""
        return missing("nixl_cu12._api")


class Read(Nixl):
    """The sender rings; readers read."""

    progress_thread = False

    def offer(self) -> Any:
        """Where the tensors are."""
        return self.card()

    def join(self, offered: Any) -> None:
        """Prepares the read."""
        self.prepare("READ", offered)

    def send(self, version: int) -> None:
        """Until NIXL says that all have read. To ask for that is also what lets it make connections here."""
        self.place.ring()
        self.noticed(self.place.readers)

    def receive(self, version: int) -> None:
        """All of it."""
        self.place.heard()
        self.move()


class Write(Nixl):
    """The sender writes into all readers at once, and NIXL tells them when it is done."""

    def join(self, offered: Any) -> Any:
        """Where the tensors are."""
        return self.card()

    def admit(self, joined: list[Any]) -> None:
        """Prepares the writes."""
        for card in joined:
            self.prepare("WRITE", card)

    def send(self, version: int) -> None:
        """All of it."""
        self.move()

    def receive(self, version: int) -> None:
        """Waits for the notification."""
        self.noticed(1)
