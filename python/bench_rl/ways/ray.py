"""Ray's objects: a trainer puts buckets into Ray's store, rollouts get them."""

import importlib.util
from typing import Any

import torch

from ..model import Memory, octets
from .packed import bucket_bytes, buckets
from .way import Place, Task, Way

BOARD = "bench-rl-board"


class RayObjects(Way):
    """Each process is a driver of one Ray here, which the first starts. An actor hands references over;
    the bytes lie in Ray's shared memory."""

    def __init__(self, place: Place, memory: Memory, task: Task) -> None:
        super().__init__(place, memory, task)
        import ray
        from torch.distributed import TCPStore

        store = TCPStore(*place.store, is_master=False)
        self.ray, self.held = ray, list[Any]()
        if place.rank == 0:
            if not ray.is_initialized():
                store.set("ray", started(ray, 16 * memory.bytes + (200 << 20)))
        elif not ray.is_initialized():
            ray.init(address=store.get("ray").decode(), log_to_driver=False, namespace=BOARD)
        board = ray.remote(num_cpus=0)(Board)
        self.references: list[Any] = []
        self.board = board.options(name=f"{BOARD}-{task.name}", get_if_exists=True).remote()
        sizes = {piece.name: memory.tensors[piece.name].nbytes for piece in memory.pieces}
        self.buckets = buckets(sizes, bucket_bytes(task))

    def send(self, version: int) -> None:
        """Puts the buckets; the store has copies of its own then."""
        if self.place.rank == 0:
            tensors = self.memory.tensors
            packed = [torch.cat([octets(tensors[name]) for name in names]) for names in self.buckets]
            self.held = [self.ray.put(bucket.numpy()) for bucket in packed]
            self.ray.get(self.board.show.remote(version, self.held))

    def wait(self, version: int) -> None:
        """Until it is shown."""
        self.references = self.ray.get(self.board.shown.remote(version), timeout=self.place.timeout)

    def receive(self, version: int) -> None:
        """Gets the buckets, and copies the tensors out."""
        for names, reference in zip(self.buckets, self.references, strict=True):
            packed, at = torch.from_numpy(self.ray.get(reference).copy()), 0
            for name in names:
                own = octets(self.memory.tensors[name])
                own.copy_(packed[at : at + own.numel()])
                at += own.numel()

    @staticmethod
    def lacking(place: Place) -> str | None:
        """Ray, or what it would need."""
        if importlib.util.find_spec("ray") is None:
            return "Ray is not installed here (make test-ray installs it into .venv-ray)"
        if place.interface != "lo":
            return "each emulated host would need a Ray node of its own"
        if place.trainer != "ddp" or place.rollout_tp > 1:
            return "it is written for whole copies alone"
        return None


def started(ray: Any, store_bytes: int, tries: int = 3) -> str:
    """Starts Ray; its address. Ray gives its own processes 30 s for that, too few on a busy machine."""
    try:
        context = ray.init(
            num_cpus=1,
            object_store_memory=store_bytes,
            include_dashboard=False,
            log_to_driver=False,
            namespace=BOARD,
        )
        return str(context.address_info["gcs_address"])
    except Exception:  # of no class of its own
        ray.shutdown()
        if tries == 1:
            raise
        return started(ray, store_bytes, tries - 1)


class Board:
    """Where references are handed over."""

    def __init__(self) -> None:
        import asyncio

        self.versions: dict[int, list[Any]] = {}
        self.changed = asyncio.Condition()

    async def show(self, version: int, references: list[Any]) -> None:
        """Hands the references of a version over."""
        async with self.changed:
            self.versions = {version: references}
            self.changed.notify_all()

    async def shown(self, version: int) -> list[Any]:
        """Waits for them."""
        async with self.changed:
            await self.changed.wait_for(lambda: version in self.versions)
            return self.versions[version]
