"""From a BF16 trainer to a vLLM engine in FP8: weights are quantised on the way, and what arrives is,
to the bit, what vLLM's own `load_weights` makes of the checkpoint that torch quantises."""

import multiprocessing
import random
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weightcast as wc
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog
from weightcast.testing import fp8

from .cpu import claim_fp8
from .engine import build
from .processes import SOON, Rank
from .rules import Rules
from .test_end_to_end import same, server, update_all  # noqa: F401  (a fixture)
from .test_fp8 import BLOCK, quantised, with_scales
from .trainer import Trainer, Values, checkpoint

QUANTISED = "*_proj.weight"


def over_files(directory: Path, me: wc.Replica, all_here: Barrier) -> Callable:
    """The largest of each number over all ranks. (Over gloo: python/tests/test_torch.py. A fork of a
    process that has imported vLLM has a process group of its parent's.)"""

    def largest(numbers: np.ndarray) -> None:
        np.save(directory / f"{me.shard}.npy", numbers)
        all_here.wait(SOON)
        seen = [np.load(directory / f"{rank}.npy") for rank in range(me.num_shards)]
        numbers[:] = np.max(seen, axis=0)
        all_here.wait(SOON)

    return largest


def trainer(
    say: Callable, hear: Callable, records: list, catalog: Catalog, me: wc.Replica,
    directory: Path, all_here: Barrier,
) -> None:
    """A rank with BF16 weights, published in FP8."""
    torch.set_num_threads(1)  # a fork has not the threads of its parent's pool
    local = Trainer(records, catalog)
    local.layout.quantise(QUANTISED, block=(BLOCK, BLOCK), formula="deepgemm")
    local.layout.exchange = over_files(directory, me, all_here)
    with wc.open("policy-fp8", me, role="trainer", epoch="new", server=hear()) as handle:
        handle.register(local.layout, deadline=SOON)
        say("ready")
        while (version := hear()) is not None:
            local.fill(checkpoint(catalog, version))
            with handle.published(version, deadline=SOON):
                say("published")
                hear()
            say("unpublished")
    say("closed")


def rollout(
    say: Callable, hear: Callable, drawn: dict[str, Any], tp: int, ep: bool, catalog: Catalog,
    me: wc.Replica,
) -> None:
    """A rank of an FP8 engine that updates, and says which parameters differ from loaded ones."""
    torch.set_num_threads(1)  # a fork has not the threads of its parent's pool
    claim_fp8()

    def built() -> torch.nn.Module:
        return build(drawn, tp=tp, rank=me.shard, ep=ep)

    model, once = built(), built()
    live = vllm.read(model, with_scales(catalog))
    with wc.open("policy-fp8", me, server=hear()) as handle:
        handle.register(live.layout(stage=True), deadline=SOON)
        say("ready")
        while (version := hear()) is not None:
            updated = handle.update(wc.exact(version), deadline=SOON)
            assert updated.changed and updated.verified == updated.bytes
            live.finish()
            once.load_weights(by_torch(checkpoint(catalog, version)).items())
            want = dict(once.named_parameters())
            sourced = set(dict(model.named_parameters())) - set(live.unsourced)
            got = dict(model.named_parameters())
            say([name for name in sourced if not same(got[name], want[name])])
    say("closed")


def by_torch(values: Values) -> Values:
    """The FP8 checkpoint of a BF16 one, block by block."""
    made = {}
    for name, value in values.items():
        if name.endswith("_proj.weight"):
            made[name], made[f"{name}_scale_inv"] = fp8.quantise(value, (BLOCK, BLOCK))
        else:
            made[name] = value
    return made


@pytest.mark.parametrize("spec", ["fsdp2:dp=3", "megatron:tp=2,pp=2"])
@pytest.mark.parametrize(("family", "tp", "ep"), [("qwen3", 2, False), ("qwen3_moe", 2, True)])
def test_bf16_ranks_reach_an_fp8_engine(
    family: str, tp: int, ep: bool, spec: str, tmp_path: Path, server  # noqa: F811
) -> None:
    drawn = quantised(family, random.Random(f"{family} {spec}"))
    plain = {key: value for key, value in drawn.items() if key != "quantization_config"}
    rules = Rules(plain, tmp_path)
    catalog = rules.catalog()
    ranks = 3 if spec.startswith("fsdp2") else 4
    if ep and not spec.startswith("fsdp2"):
        spec += ",ep=2"
    all_here = multiprocessing.get_context("fork").Barrier(ranks)
    trainers = [
        Rank(
            trainer, rules.records(spec, rank), catalog, wc.Replica("trainer", rank, ranks),
            tmp_path, all_here,
        )
        for rank in range(ranks)
    ]
    rollouts = [
        Rank(rollout, drawn, tp, ep, catalog, wc.Replica("rollout", rank, tp)) for rank in range(tp)
    ]
    update_all(trainers, rollouts, server, (drawn, spec))
