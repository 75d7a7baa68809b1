"""One rank of a rollout: a tensor-parallel engine that follows the latest version and samples.

Run by `__main__`, one process per rank.
"""

import time
import zlib
from contextlib import nullcontext

import torch
import torch.distributed as dist

import weightcast as wc

from .allocation import AllocationWatch
from .backlog import Batch
from .engine import TPEngine
from .processes import join_group
from .samples import Samples
from .settings import Worker


def roll_out(worker: Worker, samples: Samples, engine: TPEngine) -> None:
    """The loop: bring the weights up to date, sample, send back."""
    settings, task = worker.settings, worker.settings.task
    draw = torch.Generator().manual_seed(seed_of(worker))
    me = wc.Replica(worker.name, shard=worker.rank, num_shards=worker.size)
    with wc.open("policy", me, role="rollout") as handle:
        handle.register(engine.layout())
        asked = time.monotonic()
        moved = handle.replicate(wc.latest(), deadline=settings.timeout)
        report_update(samples, moved, asked)
        while wanted(worker, samples):
            if not settings.no_sync:
                asked = time.monotonic()
                moved = handle.update(wc.latest(), deadline=settings.timeout)
                report_update(samples, moved, asked)
            prompts = task.prompts(settings.prompts, draw).repeat_interleave(settings.answers, 0)
            answers, logprobs = engine.generate(
                prompts, task.length, temperature=settings.temperature, generator=draw
            )
            if worker.rank == 0:
                arrays = prompts.numpy(), answers.numpy(), logprobs.numpy()
                assert handle.version is not None  # an update has returned
                samples.put(Batch(handle.version, *arrays))


def seed_of(worker: Worker) -> int:
    """The same on all ranks of a rollout, another for each rollout."""
    return zlib.crc32(f"{worker.settings.seed} {worker.name}".encode())


def wanted(worker: Worker, samples: Samples) -> bool:
    """Whether another batch is wanted: rank 0 asks, all ranks hear the answer."""
    go = torch.tensor([worker.rank == 0 and samples.ticket() is not None])
    if worker.size > 1:
        dist.broadcast(go, src=0)
    return bool(go)


def report_update(samples: Samples, moved: wc.Updated, asked: float) -> None:
    """Tells the parent what this shard took, if anything, and how long it stood still for it."""
    if moved.changed:
        samples.report(
            event="update",
            version=moved.version,
            bytes=moved.bytes,
            seconds=moved.seconds,
            verified=moved.verified,
            asked=asked,
            committed=time.monotonic(),
        )


def main() -> None:
    """The process of one rollout rank."""
    worker = Worker.from_environment()
    config = worker.settings.model
    with join_group(worker) as samples:
        watch = AllocationWatch(config) if worker.size > 1 else None
        with watch or nullcontext():
            engine = TPEngine(config, worker.rank, worker.size)
            if watch:
                watch.settle(engine)
            roll_out(worker, samples, engine)
        if watch:
            samples.report(event="allocation", **watch.summary())


if __name__ == "__main__":
    main()
