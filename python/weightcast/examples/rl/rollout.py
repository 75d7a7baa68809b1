"""One rank of a rollout: follows the latest version, and samples. Run by `supervisor`."""

import time
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist

import weightcast as wc

from ..rl_loop.backlog import Batch
from ..rl_loop.processes import process_group
from ..rl_loop.rollout import report_update
from ..rl_loop.samples import Samples
from .alphabet import alphabet_of
from .engines import RolloutEngine, engine_of
from .settings import Post
from .stamp import Stamp

STOP = -1
"""In the place of a version: the run is over."""


def roll_out(post: Post, samples: Samples, engine: RolloutEngine) -> None:
    """The loop: bring the weights up to date, sample, send back. It never waits for trainers but for a
    first version, and while more samples would only grow old."""
    settings, task, stamp = post.settings, post.settings.task, Stamp()
    alphabet, draw = alphabet_of(settings), torch.Generator().manual_seed(seed_of(post))
    me = wc.Replica(post.name, shard=post.rank, num_shards=post.size)
    with wc.open("policy", me, deadline=settings.timeout) as handle:
        handle.register(stamp.add_to(engine.layout(handle)), deadline=settings.timeout)
        while (floor := wanted(post, samples)) != STOP:
            for moved, asked in following(handle, floor, settings.timeout):
                if moved.changed:
                    engine.installed()
                report_update(samples, moved, asked)
            prompts = task.prompts(settings.rollouts_per_gpu // settings.answers, draw)
            tokens = alphabet.encode(prompts).repeat_interleave(settings.answers, 0)
            answers, logprobs = engine.answer(tokens, task.length, settings.temperature, draw)
            if post.rank == 0:
                assert handle.version is not None  # an update has returned
                arrays = tokens.numpy(), answers.numpy(), logprobs.numpy()
                samples.put(Batch(handle.version, *arrays, digest=stamp.text))


def following(handle: wc.Handle, floor: int, timeout: float) -> Iterator[tuple[wc.Updated, float]]:
    """Brings the weights to the newest version: each update, and since when it was waited for.

    Waits for a version only where the weights are so old that samples of theirs would be dropped.
    Trainers that publish in place show a version for a moment, so one that was there may be gone."""
    asked = time.monotonic()
    moved = handle.update(deadline=timeout)
    yield moved, asked
    while moved.version is not None and moved.version < floor:
        asked = time.monotonic()
        handle.wait(wc.available(wc.at_least(floor)), deadline=timeout)
        moved = handle.update(deadline=timeout)
        yield moved, asked


def seed_of(post: Post) -> int:
    """The same on all ranks of a rollout, another for each rollout and each of its lives."""
    return zlib.crc32(f"{post.settings.seed} {post.name} {post.life}".encode())


def wanted(post: Post, samples: Samples) -> int:
    """The version that another batch should have at least, or `STOP`: rank 0 asks, all ranks hear."""
    floor = samples.ticket() if post.rank == 0 else None
    said = torch.tensor([STOP if floor is None else floor])
    if post.size > 1:
        dist.broadcast(said, src=0)
    return int(said)


def main() -> None:
    """The process of one rollout rank."""
    post = Post.from_environment()
    settings = post.settings
    torch.set_num_threads(1)  # the ranks share the cores
    group: AbstractContextManager[None] = nullcontext()
    if post.size > 1:
        me = (f"{post.name}.{post.life}", post.rank, post.size)
        group = process_group(me, post.rendezvous_port, settings.timeout)
    with group:
        label = f"{post.name}/{post.rank}"
        samples = Samples(post.samples_port, post.token, label, settings.timeout)
        try:
            roll_out(post, samples, engine_of(post))
        finally:
            samples.close()


if __name__ == "__main__":
    main()
