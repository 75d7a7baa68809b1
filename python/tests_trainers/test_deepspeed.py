"""DeepSpeed on real gloo ranks: what engines read is what DeepSpeed itself gathers."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: make test-trainers installs it")

from . import deepspeed_job, engine
from .deepspeed_job import ZeroJob
from .ranks import Process, tell

TENSOR = {"one": (1, False), "two": (2, False), "four": (4, False)}
BY_EXPERT = {"one": (1, False), "experts": (2, True)}
OFFLOADED = {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}

CASES = {"zero3": (ZeroJob(3), TENSOR)}
FULL = {
    "zero1": (ZeroJob(1), TENSOR),
    "zero2": (ZeroJob(2, tied=True), TENSOR),
    "zero3, three ranks": (ZeroJob(3, world=3, tied=True), TENSOR),
    "zero3, all persistent": (ZeroJob(3, zero={"stage3_param_persistence_threshold": 10**6}), TENSOR),
    "zero3, fp8": (ZeroJob(3, fp8=True), TENSOR),
    "zero3, offloaded": (ZeroJob(3, zero=OFFLOADED), TENSOR),
    "zero3, experts": (ZeroJob(3, world=3, experts=True), BY_EXPERT),
    "zero2, experts": (ZeroJob(2, experts=True), BY_EXPERT),
}


def cases() -> list:
    core = [pytest.param(*case, id=name) for name, case in CASES.items()]
    return core + [pytest.param(*case, id=name, marks=pytest.mark.full) for name, case in FULL.items()]


@pytest.mark.parametrize(("job", "engines"), cases())
def test_engines_have_what_deepspeed_trained(job: ZeroJob, engines: dict, server: str, tmp_path: Path) -> None:
    rendezvous = str(tmp_path / "rendezvous")
    ranks = [Process(deepspeed_job.run, rank, job, server, rendezvous) for rank in range(job.world)]
    rollout = None
    try:
        replicas, held = zip(*[rank.told() for rank in ranks], strict=True)
        assert len({replica.name for replica in replicas}) == (1 if job.stage == 3 else job.world)
        expected = by_name(held[0])
        made = engine.in_fp8 if job.fp8 else dict
        rollout = Process(engine.serve, server, engine.checkpoint_of(made(expected)), engines)
        for step in (1, 2):
            tell(ranks, step)
            before, expected = expected, by_name([rank.told() for rank in ranks][0])
            assert all(not torch.equal(before[name], expected[name]) for name in expected if "experts" not in name)
            rollout.tell(step)
            engine.compare(rollout.told(), made(expected))
            tell(ranks, "go on")
        tell(ranks, None)
        assert [rank.told() for rank in ranks] == [None] * job.world
    finally:
        for process in [*ranks, *([] if rollout is None else [rollout])]:
            process.end()


def by_name(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The published tensors: experts apart, as checkpoints have them."""
    named = {}
    for name, tensor in held.items():
        module, _, kind = name.rpartition(".experts.")
        if kind == "gate_up_proj":
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                named[f"{module}.experts.{expert}.gate_proj.weight"] = gate
                named[f"{module}.experts.{expert}.up_proj.weight"] = up
        elif kind == "down_proj":
            named |= {f"{module}.experts.{e}.down_proj.weight": one for e, one in enumerate(tensor)}
        else:
            named[name] = tensor
    return named
