"""The loops of the README, as they stand there, with stubs for what a user brings."""

import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

torch = pytest.importorskip("torch")

README = Path(__file__).parents[2] / "README.md"
STEPS, RANKS, SIZE = 4, 2, 8


def programs() -> list[str]:
    """The trainer's and the rollout's half of the block that opens with the imports."""
    (block,) = re.findall(r"```python\n(import weightcast as wc.*?)```", README.read_text(), re.S)
    imports, trainer, rollout = re.split(r"^# (?:trainer|rollout): .*$", block, flags=re.M)
    return [imports + trainer, imports + rollout]


class Samples:
    """Versions that rollouts have sampled with, and the trainer's wait for one."""

    def __init__(self):
        self.seen, self.changed = [], threading.Condition()

    def put(self, sample, version):
        assert version is not None and sample == version, "sampled from other weights than it says"
        with self.changed:
            self.seen.append(version)
            self.changed.notify_all()

    def get(self, min_version):
        def is_there():
            return min_version < 0 or any(version >= min_version for version in self.seen)

        with self.changed:
            assert self.changed.wait_for(is_there, SOON), self.seen
        return torch.ones(SIZE)


class Running:
    """True until all ranks have gone as far as the one that was ahead when it was told to end."""

    def __init__(self):
        self.rounds, self.end, self.lock = [0] * RANKS, None, threading.Lock()

    def of(self, rank):
        def more(_):
            with self.lock:
                self.rounds[rank] += 1
                return self.end is None or self.rounds[rank] <= self.end

        return type("Of", (), {"__bool__": more})()

    def stop(self):
        with self.lock:
            self.end = max(self.rounds) + 1


class Model(torch.nn.Module):
    """Attention of one block, whose weights all are the version."""

    def __init__(self):
        super().__init__()
        self.block = torch.nn.Module()
        for x in "qkv":
            setattr(self.block, f"{x}_proj", torch.nn.Linear(SIZE, SIZE, bias=False))
        self.fill(0)

    def fill(self, version):
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(version)

    def forward(self, inputs):
        return sum(getattr(self.block, f"{x}_proj")(inputs).sum() for x in "qkv")


class Optimizer:
    def __init__(self, model, between):
        self.model, self.version, self.between = model, 0, between

    def step(self):
        if self.version == 0:
            self.between()
        self.version += 1
        self.model.fill(self.version)

    def zero_grad(self):
        pass


def engine_of(memory):
    def generate():
        assert (memory == memory[0, 0]).all(), "torn"
        return int(memory[0, 0])

    return SimpleNamespace(generate=generate, reset_cache=lambda: None)


def test_rollouts_of_the_readme_sample_from_nothing_but_versions(server, monkeypatch):
    monkeypatch.setenv("WEIGHTCAST_SERVER", server.address)
    monkeypatch.delenv("WEIGHTCAST_TOKEN_FILE", raising=False)
    trainer_program, rollout_program = programs()
    samples, running, failures = Samples(), Running(), []
    registered, first_is_gone = threading.Barrier(RANKS + 1), threading.Event()
    model = Model()

    def loss(model, batch):
        return model(batch)

    def rollouts_wait() -> bool:
        (seen,) = wc.status(server.address)["models"]
        return any(r["name"] == "rollout-0" and r["pending"] for r in seen["replicas"])

    def between():
        """Version 0 is no more and 1 is not there yet: rollouts that come now find nothing."""
        first_is_gone.set()
        until = time.monotonic() + SOON
        while not rollouts_wait() and not failures:
            assert time.monotonic() < until, "the rollouts did not come"
            time.sleep(0.01)

    def train():
        optimizer = Optimizer(model, between)
        given = {"model": model, "samples": samples, "steps": STEPS, "loss": loss, "optimizer": optimizer}
        exec(trainer_program, given)

    register, update = wc.Handle.register, wc.Handle.update

    def register_shard(handle, layout, **options):
        register(handle, layout, **options)
        if handle.replica.name != "trainer":
            registered.wait(SOON)

    def update_shard(handle, *arguments, **options):
        assert first_is_gone.wait(SOON)
        return update(handle, *arguments, **options)

    monkeypatch.setattr(wc.Handle, "register", register_shard)
    monkeypatch.setattr(wc.Handle, "update", update_shard)

    def roll_out(rank):
        qkv = np.full((3 * SIZE // RANKS, SIZE), -1, "f4")
        blocks = [SimpleNamespace(name="block", qkv=qkv)]
        given = {"rank": rank, "blocks": blocks, "engine": engine_of(qkv), "samples": samples}
        exec(rollout_program, given | {"running": running.of(rank)})

    def run(act, *arguments):
        try:
            act(*arguments)
        except BaseException as error:
            failures.append(error)
            registered.abort()

    rollouts = [threading.Thread(target=run, args=(roll_out, rank)) for rank in range(RANKS)]
    trainer = threading.Thread(target=run, args=(train,))
    # Its first version ends when they have looked their shapes up in it.
    samples_get, samples.get = samples.get, lambda min_version: (
        registered.wait(SOON) if min_version < 0 else None, samples_get(min_version)
    )[1]
    for thread in [*rollouts, trainer]:
        thread.start()
    trainer.join()
    running.stop()
    for thread in rollouts:
        thread.join()
    assert not failures, failures
    assert samples.seen and min(samples.seen) > 0, "the first that there was to take is version 1"
