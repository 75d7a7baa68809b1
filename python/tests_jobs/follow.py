"""Engines that follow a job, step by step."""

from pathlib import Path
from typing import Any

import torch

from tests.conftest import SOON
from tests.jobs import empty_engine, engine_shards
from tests.test_torch import bits

from .models import cuts, file_of


def follow(group: Any, directory: Path, job: str, versions: list[int], sources: set[str]) -> None:
    """Has engines of one and two shards take each version, and compares what they hold with what the trainer
    wrote. `sources` are the replicas that publish."""
    engines: dict[str, Any] = {}
    waiting = group("waiting", [empty_engine({}, 1, {})[1][0]], model=job, register=False)[0]
    for version in versions:
        held = waiting.wait(lambda held, v=version: sources <= held.get(v, set()), deadline=6 * SOON)
        assert {name for name in held[version] if name.startswith("trainer")} == sources
        tensors = torch.load(file_of(directory, job, version), weights_only=True)
        for shards in (1, 2):
            cut = cuts(tensors) if shards > 1 else {}
            if shards not in engines:
                memories, layouts = empty_engine(tensors, shards, cut)
                engines[shards] = (memories, group(f"tp{shards}", layouts, model=job))
            memories, members = engines[shards]
            members.all(lambda handle, v=version: handle.update(v, deadline=SOON))
            for memory, wanted in zip(memories, engine_shards(tensors, shards, cut), strict=True):
                assert memory.keys() == wanted.keys()
                for name, (_, tensor) in wanted.items():
                    assert bits(memory[name]) == bits(tensor), (job, shards, name, version)
        done = group(f"done-{version}", empty_engine(tensors, 1, {})[1], model=job)[0]
        done.update(version, deadline=SOON)
