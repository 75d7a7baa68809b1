"""FSDP1 without other ranks: each rank of a job is played in turn; what they hold together is the module, each element
once."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.torch import module as modules  # noqa: E402
from weightcast.torch import replicas  # noqa: E402
from weightcast.torch.flat import flats  # noqa: E402
from weightcast.torch.replicas import copy_of  # noqa: E402

from .test_gathering_words import as_rank  # noqa: E402


class Model(nn.Module):
    """Sizes that no number of ranks divides, a tied head, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed, self.up = nn.Embedding(5, 3), nn.Linear(3, 7)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.randn(1))
        self.register_buffer("steps", torch.ones(2))


def wrapped(strategy: ShardingStrategy, **options: Any) -> FullyShardedDataParallel:
    model = Model()
    model.up = FullyShardedDataParallel(
        model.up, sharding_strategy=strategy, use_orig_params=True, device_id=torch.device("cpu"), **options
    )
    return FullyShardedDataParallel(model, sharding_strategy=strategy, use_orig_params=True, device_id=torch.device("cpu"), **options)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_together_hold_each_element_once(monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    whole = {name: p.detach() for name, p in Model().named_parameters()}
    held = {name: torch.zeros(p.shape, dtype=torch.int64) for name, p in whole.items()}
    added: list[Any] = []
    real = wc.Layout.add

    def add(self: wc.Layout, memory: Any, parts: Any, **named: Any) -> wc.Layout:
        added.append((memory, parts))
        return real(self, memory, parts, **named)

    monkeypatch.setattr(wc.Layout, "add", add)
    part_of = modules.layouts.part_of
    described: dict[int, Any] = {}

    def noted(published: Any) -> Any:
        part = part_of(published)
        described[id(part)] = published
        return part

    monkeypatch.setattr(modules.layouts, "part_of", noted)
    for rank in range(world):
        with as_rank(rank, (world,)):
            model = wrapped(ShardingStrategy.FULL_SHARD)
            assert [flat.ranks for flat in flats(model)] == [tuple(range(world))] * 2
            added.clear()
            layout = wct.layout(model, buffers=False)
            assert layout.exchange is not None or world == 1
            for memory, parts in added:
                for part in parts:
                    one = described[id(part)]
                    box = tuple(slice(s, s + n) for s, n in zip(one.start, one.length, strict=True))
                    assert torch.equal(memory.reshape(one.length), whole[one.name][box]), (rank, one)
                    held[one.name][box] += 1
            copy = copy_of(model)
            assert (copy.number, copy.count, copy.ranks, copy.shard) == (0, 1, tuple(range(world)), rank)
            assert layout.origins.moved() is None
    assert all((count == 1).all() for count in held.values()), held


def test_every_rank_has_a_copy_where_nothing_is_cut() -> None:
    for rank in range(3):
        with as_rank(rank, (3,)):
            model = wrapped(ShardingStrategy.NO_SHARD)
            assert not any(flat.is_cut for flat in flats(model))
            assert copy_of(model).replica("t") == wc.Replica(f"t-{rank}")
            assert set(modules.published_by(model, names=None, rename=None, buffers=True)) == {
                "embed.weight", "up.weight", "up.bias", "scale", "steps",
            }


def test_copies_of_hybrid_sharding_are_numbered() -> None:
    for rank in range(4):
        with as_rank(rank, (2, 2)) as mesh:
            model = wrapped(ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)
            copy = copy_of(model)
            first = rank // 2 * 2
            assert (copy.number, copy.count, copy.ranks, copy.shard) == (rank // 2, 2, (first, first + 1), rank % 2)


def test_ranks_tell_each_other_what_no_mesh_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a group: ranks 0 and 2 hold the same, and so do 1 and 3."""
    said: dict[int, Any] = {}

    def asked(mesh: Any, group: Any, mine: Any) -> list[Any]:
        said[dist.get_rank()] = mine
        return list(reversed(said.values()))

    monkeypatch.setattr(replicas, "_asked", asked)
    copies = {}
    for _ in range(2):  # the second time all have spoken
        for rank in range(4):
            with as_rank(rank, (4,)):
                module = nn.Module()
                module.weight = nn.Parameter(torch.zeros(2 + rank % 2))
                copies[rank] = copy_of(module, dist.group.WORLD)
    assert [(c.number, c.ranks, c.shard) for c in copies.values()] == [(0, (0, 1), 0), (0, (0, 1), 1), (1, (2, 3), 0), (1, (2, 3), 1)]
    assert all(copy.count == 2 for copy in copies.values())
    said[1] = (said[1][0], 1, None, "it has no place")
    with as_rank(3, (4,)), pytest.raises(wc.Misuse, match="rank 1: it has no place"):
        monkeypatch.setattr(replicas, "_asked", lambda *_: list(said.values()))
        copy_of(module, dist.group.WORLD)


def test_the_mesh_that_has_all_ranks_is_found() -> None:
    from weightcast.torch.meshes import covering, root_of

    with as_rank(0, (2, 2)) as mesh:
        rows = mesh["d0"]
        assert root_of(rows) == mesh == root_of(mesh) and covering([rows, mesh["d1"]]) == mesh
        pair = init_device_mesh("cpu", (4,))
        assert covering([pair, rows]).size() == 4
        small = torch.distributed.device_mesh.DeviceMesh("cpu", torch.tensor([0, 1]))
        other = torch.distributed.device_mesh.DeviceMesh("cpu", torch.tensor([2, 3]))
        assert covering([small, mesh]) == mesh
        with pytest.raises(wc.Misuse, match=r"of which none has all ranks: .* has ranks \[2, 3\]"):
            covering([small, other])
