"""Trainers and rollouts without a model: their weights are an array."""

import os
import select
from typing import Any

import numpy as np
import ray

import weightcast as wc
import weightcast.adapters.ray as wcr

#: How many numbers a version has.
SIZE = 1 << 16


def layout(array: np.ndarray, part: str | wc.Part = "w") -> wc.Layout:
    return wc.Layout().add(array, part)


class TrainerClass:
    """Its weights are the version's number throughout."""

    def __init__(self, **options: Any) -> None:
        self.array = np.zeros(SIZE, np.float32)
        self.weights = wcr.trainer(layout(self.array), **options)

    def train(self, value: float) -> None:
        self.array[:] = value

    def publish(self, version: int) -> None:
        self.weights.publish(version)

    def leave(self) -> None:
        self.weights.leave()

    def holds(self) -> int | None:
        return self.weights.version

    def pid(self) -> int:
        return os.getpid()


class RolloutClass:
    """A whole copy, or one shard of several."""

    def __init__(self, shards: int = 1, **options: Any) -> None:
        where = wcr.where()
        part: str | wc.Part = "w"
        if shards > 1:
            index = where.replica("r", shards=shards).shard
            part = wc.part("w", dim=0, index=index, of=shards, shape=[SIZE])
        self.array = np.full(SIZE // shards, -1, np.float32)
        self.weights = wcr.rollout(layout(self.array, part), shards=shards, **options)

    def holds(self) -> tuple[int | None, set[float]]:
        """The version, and all the numbers that the memory has."""
        return self.weights.version, set(np.unique(self.array).tolist())

    def holds_nothing(self) -> bool:
        return self.weights.handle is None

    def update(self, **options: Any) -> dict[str, Any]:
        updated = self.weights.update(**options)
        return {name: getattr(updated, name) for name in ("version", "source", "bytes", "verified")}

    def ignore_updates(self) -> None:
        self.weights.update = lambda **_: None

    def read(self, path: str) -> str:
        """Is busy until somebody writes there."""
        with open(path) as file:
            return file.read()

    def replica(self) -> wc.Replica:
        return self.weights.handle.replica

    def where(self) -> wcr.Where:
        return wcr.where()

    def pid(self) -> int:
        return os.getpid()


Trainer = ray.remote(num_cpus=0)(TrainerClass)
Rollout = ray.remote(num_cpus=0)(RolloutClass)


def status(name: str = "weightcast") -> dict[str, Any]:
    """What the job's server knows: that one of the list that acts."""
    known = wcr.servers(name)
    told = [wc.status(address, token_file=known.token_file) for address in known.addresses]
    return max(told, key=lambda one: one["term"] or 0)


def replicas(model: str, name: str = "weightcast") -> dict[str, dict[str, Any]]:
    models = [one for one in status(name)["models"] if one["name"] == model]
    return {one["name"]: one for one in models[0]["replicas"]} if models else {}


def gone(pid: int, patience: float) -> bool:
    """Waits until a process has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], patience)[0])
    finally:
        os.close(process)
