"""Experts that the engine moves between updates (EPLB): over real model classes, whose maps a test changes as
vLLM's own rebalancing does. No live engine has been rebalanced: vLLM does that on GPUs alone."""

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch
from vllm.distributed.eplb.eplb_state import EplbState, compute_logical_maps

import weightcast as wc
from weightcast.adapters import vllm
from weightcast.adapters.engine import EngineShard, Settings

from .configs import config
from .engine import build, spread
from .rules import Rules
from .trainer import checkpoint

#: Ranks, and copies beside the experts.
EP, REDUNDANT = 2, 2
#: One rank reads at a time: this process says that it is that rank.
READING = Lock()


class Rank:
    """One rank of an engine with EPLB, as `EplbState.add_model` and `EplbState.rearrange` leave it."""

    def __init__(self, drawn: dict[str, Any], rank: int) -> None:
        self.model = build(drawn, tp=EP, rank=rank, ep=True, redundant=REDUNDANT)
        self.layers, self.rank = self.model.num_moe_layers, rank
        self.experts, self.slots = self.model.num_logical_experts, self.model.num_physical_experts
        self.map = torch.full((self.layers, self.experts, self.slots), -1)
        self.place(self.at_start())
        view = torch.zeros(self.layers, self.slots, dtype=torch.int32)
        self.model.set_eplb_state(view, self.map, torch.ones(self.layers, self.experts, dtype=torch.long))

    def at_start(self) -> torch.Tensor:
        first = EplbState.build_initial_global_physical_to_logical_map(self.experts, REDUNDANT)
        return torch.tensor(first).expand(self.layers, -1).contiguous()

    def place(self, by_slot: torch.Tensor) -> None:
        """What vLLM does to the map that the layers see."""
        found, _ = compute_logical_maps(by_slot, self.experts)
        self.map.fill_(-1)
        self.map[..., : found.shape[-1]] = found
        self.by_slot = by_slot

    def own(self) -> slice:
        each = self.slots // EP
        return slice(self.rank * each, (self.rank + 1) * each)

    def held(self) -> list[list[torch.Tensor]]:
        """By layer: the parameters of the experts in this rank's slots."""
        return [[w.clone() for w in layer.get_expert_weights()] for layer in self.model.moe_layers]


def shuffled(rank: Rank, seed: int) -> torch.Tensor:
    """Another map: each layer's own, each expert at least once."""
    draw, rows = random.Random(seed), []
    for _ in range(rank.layers):
        row = [*range(rank.experts), *draw.choices(range(rank.experts), k=REDUNDANT)]
        draw.shuffle(row)
        rows.append(row)
    return torch.tensor(rows)


class Rig:
    """Both ranks of an engine that follows a trainer, and what vLLM's loader makes of its weights."""

    def __init__(self, family: str, directory: Path, server: str) -> None:
        self.drawn = config(family, random.Random(family)) | {"num_experts": 4}
        self.catalog = Rules(self.drawn, directory).catalog()
        self.values = {name: t.clone() for name, t in checkpoint(self.catalog, 0).items()}
        listed = wc.Layout()
        for name, tensor in self.values.items():
            listed.add(tensor, name)
        self.trainer = wc.open("policy", wc.Replica("t"), role="trainer", epoch="new", server=server)
        self.trainer.register(listed)
        self.ranks = [Rank(self.drawn, rank) for rank in range(EP)]
        self.settings = Settings(
            server=server, catalog={n: [e.shape, e.dtype] for n, e in self.catalog.items()}
        )
        self.shards: list[EngineShard] = self.together(self.shard, self.ranks)

    def together(self, call: Callable, each: Iterable) -> list:
        """The workers of an engine make their calls at the same time."""
        with ThreadPoolExecutor(EP) as threads:
            return list(threads.map(call, each))

    def shard(self, rank: Rank) -> EngineShard:
        def read(catalog: Any) -> Any:
            with READING:
                spread(EP, 1, rank.rank)
                return vllm.read(rank.model, catalog)

        return EngineShard(self.settings, wc.Replica("engine", rank.rank, EP), read)

    def publish(self, version: int) -> None:
        for name, value in checkpoint(self.catalog, version).items():
            self.values[name].copy_(value)
        self.trainer.publish(version)

    def fetch(self, version: int) -> None:
        self.publish(version)
        try:
            self.together(lambda shard: (shard.begin(), shard.fetch(version)), self.shards)
        finally:
            self.trainer.unpublish()

    def install(self) -> None:
        for shard in self.shards:
            shard.install()

    def holds(self, version: int) -> bool:
        """Whether each slot has the expert that the map says, and all else is as vLLM loads it."""
        fresh = []
        for at in range(EP):
            fresh.append(Rank(self.drawn, at))
            fresh[-1].model.load_weights(checkpoint(self.catalog, version).items())
        by_expert = [
            [torch.cat([r.held()[layer][which] for r in fresh]) for which in range(len(fresh[0].held()[layer]))]
            for layer in range(fresh[0].layers)
        ]  # its first slots have the experts in order
        return all(self._holds(rank, once, by_expert) for rank, once in zip(self.ranks, fresh, strict=True))

    def _holds(self, rank: Rank, fresh: Rank, by_expert: list) -> bool:
        slots = all(
            torch.equal(held, whole[rank.by_slot[layer, rank.own()]])
            for layer, each in enumerate(rank.held())
            for held, whole in zip(each, by_expert[layer], strict=True)
        )
        once = dict(fresh.model.named_parameters())
        others = {n: p for n, p in rank.model.named_parameters() if ".experts." not in n}
        return slots and all(torch.equal(p, once[n]) for n, p in others.items())

    def close(self) -> None:
        self.together(lambda shard: shard.close(), self.shards)
        self.trainer.close()


@pytest.fixture(params=["qwen3_moe"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with wc.serve() as server:
        made = Rig(request.param, tmp_path, server.address)
        yield made
        made.close()


def move(rig: Rig, seed: int) -> None:
    by_slot = shuffled(rig.ranks[0], seed)
    for rank in rig.ranks:
        rank.place(by_slot)


def test_each_slot_gets_the_expert_that_is_there_now(rig: Rig) -> None:
    rig.fetch(1)
    rig.install()
    assert rig.holds(1)
    for version in (2, 3):
        move(rig, version)
        assert not rig.holds(version - 1)
        rig.fetch(version)
        rig.install()
        assert rig.holds(version)
    # Where nothing has moved, the layout is not read again.
    live = [shard._live for shard in rig.shards]
    rig.fetch(4)
    rig.install()
    assert rig.holds(4) and live == [shard._live for shard in rig.shards]


def test_what_was_fetched_for_other_slots_is_not_installed(rig: Rig) -> None:
    rig.fetch(1)
    rig.install()
    rig.fetch(2)
    move(rig, 2)
    before = [rank.held() for rank in rig.ranks]
    for shard in rig.shards:
        with pytest.raises(wc.Misuse, match="moved experts .* nothing has changed: send the weights again"):
            shard.install()
        assert shard.state.incomplete is None and shard.state.installed == 1
    for was, rank in zip(before, rig.ranks, strict=True):
        assert all(torch.equal(a, b) for x, y in zip(was, rank.held(), strict=True) for a, b in zip(x, y, strict=True))
    rig.fetch(3)
    rig.install()
    assert rig.holds(3)
