"""weightcast: rollouts read what trainers publish, or trainers write into rollouts that accept it."""

from datetime import timedelta

import torch.distributed as dist

import weightcast as wc

from ..model import Memory
from .way import Place, Task, Way


class Weightcast(Way):
    """A handle over the memory, in a model of this task alone."""

    server = "pull"

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        shard, shards = place.shard
        over_links = place.interface != "lo"
        trains = place.role == "trainer"
        host = place.address if over_links else None
        self.handle = wc.open(
            f"bench.{task.name}",
            wc.Replica(place.replica, shard=shard, num_shards=shards, host=host),
            role=place.role,
            epoch="new" if trains else "current",
            server=place.servers[self.server],
            insecure=over_links,  # nobody reaches an emulated network from outside
            data_bind=f"{place.address}:0",
            way="tcp" if over_links else place.lane,
            deadline=place.timeout,
        )
        layout = wc.Layout()
        for piece in memory.pieces:
            rows = {"dim": 0, "start": piece.start, "length": piece.rows}
            layout.add(memory.tensors[piece.name], wc.part(piece.name, shape=piece.shape, **rows))
        self.soon = place.timeout
        self.handle.register(layout, deadline=self.soon)

    def close(self) -> None:
        """Leaves."""
        self.handle.close(deadline=self.soon)


class Pull(Weightcast):
    """`publish` at the trainers; rollouts `update` from whoever has the version."""

    def send(self, version: int) -> None:
        """Publishes until one rollout has the version, which others may read from then; then takes it back,
        which waits for readers of this trainer."""
        self.handle.publish(version, deadline=self.soon)
        self.handle.wait(wc.held(version, by=1), deadline=self.soon)
        self.handle.unpublish(deadline=self.soon)

    def wait(self, version: int) -> None:
        """Until somebody has published it."""
        self.handle.wait(wc.available(version), deadline=self.soon)

    def receive(self, version: int) -> None:
        """Reads it."""
        self.handle.update(version, deadline=self.soon)


class Push(Weightcast):
    """The first trainer drives a push to all rollouts; the others write too."""

    server = "push"

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        self.store = dist.TCPStore(*place.store, is_master=False, timeout=timedelta(seconds=place.timeout))

    def send(self, version: int) -> None:
        """Publishes until all rollouts have the version."""
        self.handle.publish(version, deadline=self.soon)
        self.meet(version)
        if self.place.rank == 0:
            names = [f"rollout-{number}" for number in range(self.place.rollouts)]
            # As long as a rollout is busy, a push to it waits, and not the push to the others.
            pushed = self.handle.push(version, to=names, deadline=self.soon, patience=self.soon)
            if not pushed:
                raise RuntimeError(f"the push did not reach all: {pushed}")
        self.handle.wait(wc.held(version), deadline=self.soon)
        self.handle.unpublish(deadline=self.soon)

    def meet(self, version: int) -> None:
        """Waits until all trainers have published: who has not when the push begins sends nothing."""
        mark = f"{self.task.name}/{version}"
        if self.store.add(mark, 1) == self.place.trainers:
            self.store.set(f"{mark}/all", "")
        if self.place.rank == 0:
            self.store.wait([f"{mark}/all"])

    def receive(self, version: int) -> None:
        """Accepts it."""
        self.handle.accept(deadline=self.soon)
