"""The child processes: trainers, which the run cannot do without, and rollouts, which it can.

A rollout of which a process has died is ended and started again, as often as `--restarts` allows;
then the run goes on without it. The run ends when the trainers have done their work, with a trainer
that died, or with the last rollout.
"""

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ..rl_loop.processes import Child, ChildFailed, end
from .settings import LoopSettings, Post

GRACE = 10.0
"""Seconds in which rollouts may leave once they are told that the run is over."""
LOOK = 0.05
"""Seconds between two looks at the children."""


class Supervisor:
    """All child processes of a run; leaving the context ends those that still run.

    `on_loss(name, why)` is called for each rollout that died.
    """

    def __init__(
        self,
        settings: LoopSettings,
        server_address: str,
        samples_port: int,
        token: str,
        on_loss: Callable[[str, str], None],
    ):
        self.settings, self.samples_port, self.token = settings, samples_port, token
        self.on_loss = on_loss
        self.environment = {"WEIGHTCAST_SERVER": server_address, "GLOO_SOCKET_IFNAME": "lo"}
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.restarts = settings.restarts
        self.trainers: list[Child] = []
        self.rollouts: dict[str, list[Child]] = {}
        self.lives: dict[str, int] = {}

    def start(self) -> None:
        """Starts all of them."""
        self.trainers = self._start("trainer", "trainer", self.settings.trainers)
        for number in range(self.settings.rollouts):
            self._start_rollout(f"rollout-{number}")

    def run(self) -> None:
        """Until the trainers have done their work. Raises `ChildFailed` if they cannot."""
        while not self._trained():
            self._mend()
            time.sleep(LOOK)

    def dismiss(self) -> None:
        """Lets rollouts leave, which have been told; one that stands still is left behind."""
        deadline = time.monotonic() + GRACE
        running = [child.process for ranks in self.rollouts.values() for child in ranks]
        while any(each.poll() is None for each in running) and time.monotonic() < deadline:
            time.sleep(LOOK)

    def _trained(self) -> bool:
        failures = [why for child in self.trainers if (why := child.failure())]
        if failures:
            raise ChildFailed("\n".join(failures))
        return all(child.process.poll() is not None for child in self.trainers)

    def _mend(self) -> None:
        for name, ranks in list(self.rollouts.items()):
            failures = [why for child in ranks if (why := gone(child))]
            if not failures:
                continue
            end(ranks)
            del self.rollouts[name]
            self.on_loss(name, failures[0])
            if self.restarts:
                self.restarts -= 1
                self._start_rollout(name)
            elif not self.rollouts:
                raise ChildFailed(f"no rollout is left, and --restarts are used up: {failures[0]}")

    def _start_rollout(self, name: str) -> None:
        self.rollouts[name] = self._start("rollout", name, self.settings.rollout_tp)

    def _start(self, role: str, name: str, size: int) -> list[Child]:
        life = self.lives[name] = self.lives.get(name, 0) + 1
        return [
            Child(
                f"{__package__}.{role}",
                role,
                Post(
                    name=name,
                    rank=rank,
                    size=size,
                    life=life,
                    settings=self.settings,
                    token=self.token,
                    samples_port=self.samples_port,
                    rendezvous_port=self.store.port,
                ),
                self.environment,
            )
            for rank in range(size)
        ]

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *args: Any) -> None:
        end([*self.trainers, *(child for ranks in self.rollouts.values() for child in ranks)])


def gone(child: Child) -> str | None:
    """Why a child does no work any more, before it was told that there is no more; None if it does."""
    early = f"{child.name} ended before the run was over"
    return child.failure() or (None if child.process.poll() is None else early)
