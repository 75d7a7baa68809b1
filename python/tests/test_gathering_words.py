"""Gathering without other ranks: each rank of a mesh is played in turn, and what they send each other is handed over
afterwards. Held against the whole tensor, for every mesh and every way of cutting it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.pinned import PinnedMemory  # noqa: E402
from weightcast.pipeline import StageFailed  # noqa: E402
from weightcast.torch import agreement, gathering  # noqa: E402
from weightcast.torch.agreement import raise_together, refuse_other_plans, told_by_all  # noqa: E402
from weightcast.torch.casts import Cast, cast, converted  # noqa: E402
from weightcast.torch.gathering import gather_of  # noqa: E402
from weightcast.torch.module import boxes_at, exchange_over  # noqa: E402
from weightcast.torch.planned import Ranks, plan  # noqa: E402
from weightcast.torch.recipes import products, recipe  # noqa: E402
from weightcast.torch.replicas import copy_of  # noqa: E402


@contextmanager
def as_rank(rank: int, sizes: tuple[int, ...]) -> Iterator[DeviceMesh]:
    """This process is one rank of a mesh, of which there are no others."""
    world = torch.Size(sizes).numel()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield init_device_mesh("cpu", sizes, mesh_dim_names=tuple(f"d{n}" for n in range(len(sizes))))
    finally:
        dist.destroy_process_group()


def cut(mesh: DeviceMesh, whole: torch.Tensor, placements: list[Any]) -> DTensor:
    """What this rank has of a tensor."""
    empty = DTensor.from_local(
        torch.empty(0), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
    boxes = boxes_at("w", empty, list(mesh.get_coordinate()))
    places = [whole[tuple(slice(s, s + n) for s, n in zip(*box, strict=True))] for box in boxes]
    along = 0
    if len(boxes) > 1:
        along = next(d for d in range(whole.ndim) if boxes[0][0][d] != boxes[1][0][d])
    local = torch.cat(places, along) if places else whole[:0]
    return DTensor.from_local(
        local.contiguous(), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


class Post:
    """What ranks send each other, in the order of each pair."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[tuple[int, int], list[torch.Tensor]] = {}
        self.awaited: list[tuple[int, int, torch.Tensor]] = []
        self.arrived: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self.groups: set[tuple[int, ...]] = set()
        monkeypatch.setattr(gathering, "_together", self.together)

    def together(self, operations: list[tuple[Any, torch.Tensor, int]], group: Any) -> list[Any]:
        own = dist.get_rank()
        for do, what, other in operations:
            self.groups.add(tuple(sorted(dist.get_process_group_ranks(group))))
            assert what.is_contiguous(), "bytes are sent as they lie"
            if do is dist.isend:
                self.sent.setdefault((own, other), []).append(what.clone())
            else:
                assert do is dist.irecv
                self.awaited.append((other, own, what))
        return [lambda: self.arrive(own)]

    def arrive(self, own: int) -> None:
        """Nothing has arrived before it was waited for."""
        for place, came in self.arrived.pop(own, ()):
            place.copy_(came.view(place.shape))

    def deliver(self) -> None:
        for source, target, place in self.awaited:
            came = self.sent[source, target].pop(0)
            assert came.dtype == place.dtype and came.shape.numel() == place.numel()
            self.arrived.setdefault(target, []).append((place, came))
        assert not any(self.sent.values()), "all that was sent was awaited"


CASES = [
    ((4,), [Shard(0)], (8, 3)),
    ((4,), [Shard(0)], (5, 3)),  # the third rank has one row, the last none
    ((4,), [Shard(1)], (3, 6)),
    ((3,), [Shard(0)], (7,)),
    ((4,), [Replicate()], (3, 2)),
    ((1,), [Shard(0)], (3, 2)),
    ((2, 2), [Shard(0), Shard(1)], (4, 6)),
    ((2, 2), [Shard(0), Shard(0)], (8, 3)),
    ((2, 2), [_StridedShard(0, split_factor=2), Shard(0)], (8, 3)),
    ((2, 3), [Replicate(), Shard(0)], (6, 2)),
    ((3, 2), [Shard(1), Replicate()], (2, 5)),
    ((2, 2, 2), [Shard(0), Replicate(), Shard(1)], (4, 4)),
    ((2, 1, 2), [Shard(2), Shard(0), Shard(1)], (3, 4, 5)),
]


@pytest.mark.parametrize(("sizes", "placements", "shape"), CASES)
def test_the_owner_gets_the_whole_and_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], placements: list[Any], shape: tuple[int, ...]
) -> None:
    whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(torch.bfloat16)
    ranks = range(torch.Size(sizes).numel())
    copies: set[tuple[int, ...]] = set()
    for owner in ranks:
        post, made = Post(monkeypatch), {}
        for rank in ranks:
            with as_rank(rank, sizes) as mesh:
                tensor = cut(mesh, whole, placements)
                gather = gather_of("w", tensor, (rank,))
                copies.add(gather.holders)
                most, after = gather.nbytes(tensor, owner)
                made[rank] = gather.begin(tensor, owner)
                got, _ = made[rank]
                whole_here = not gather.lane
                assert (got is not None) == (whole_here or rank == owner)
                if rank == owner and not whole_here:
                    assert after == whole.nbytes <= most and owner in gather.holders
                else:
                    assert after == 0
                if whole_here:
                    assert got.data_ptr() == tensor.to_local().data_ptr(), "read where it lies"
        post.deliver()
        for rank, (got, waits) in made.items():
            for wait in waits:
                wait()
            if got is not None:
                assert torch.equal(got, whole), (owner, rank)
        assert all(owner in group for group in post.groups)
    # Every rank is in one set of holders, and sets are disjoint.
    assert sorted(rank for holders in copies for rank in holders) == list(ranks)


def test_memory_while_a_tensor_is_gathered_is_counted_to_the_byte() -> None:
    """Columns arrive beside the whole and are copied; rows arrive in their place; a sender copies what does not lie
    in one piece."""
    for placements, beside in (([Shard(0)], 0), ([Shard(1)], 3 * 4 * 6 * 4)):
        with as_rank(1, (4,)) as mesh:
            tensor = cut(mesh, torch.zeros(4, 24), placements)
            gather = gather_of("w", tensor, (1,))
            assert gather.nbytes(tensor, 1) == (4 * 24 * 4 + beside, 4 * 24 * 4)
            assert gather.nbytes(tensor, 2) == (0, 0)
            if beside:
                strided = DTensor.from_local(
                    torch.zeros(6, 4).t(), mesh, placements, run_check=False, shape=(4, 24), stride=(24, 1)
                )
                assert gather.nbytes(strided, 2) == (24 * 4, 0)
                assert gather.nbytes(strided, 7) == (0, 0), "an owner elsewhere has it of others"


def test_ranks_along_several_dimensions_make_one_group_for_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves: the ranks outside of it know nothing of the tensor, and would not take part."""
    made: list[Any] = []
    monkeypatch.setattr(dist, "new_group", lambda ranks, **named: made.append((ranks, named)) or object())
    for job in range(2):
        with as_rank(5, (2, 2, 2)) as mesh:
            groups = [gather_of("w", cut(mesh, torch.zeros(4, 4), [Replicate(), Shard(0), Shard(1)]), (5,)).group for _ in range(3)]
            assert groups[0] is groups[1] is groups[2] is not None
            assert made[job:] == [([4, 5, 6, 7], {"use_local_synchronization": True})]
            all_ = gather_of("w", cut(mesh, torch.zeros(4, 4), [Shard(0), Shard(0), Shard(1)]), (5,))
            assert all_.group is dist.group.WORLD and all_.holders == tuple(range(8))


def test_what_ranks_only_have_a_sum_of_is_refused() -> None:
    with as_rank(0, (2,)) as mesh:
        tensor = DTensor.from_local(torch.zeros(2), mesh, [Partial()], run_check=False)
        with pytest.raises(wc.LayoutMismatch, match="w: placement .* holds no slice; redistribute it first"):
            gather_of("w", tensor, (0,))


# Who makes what

WHOLES = {
    "rows": torch.arange(24.0).reshape(6, 4),
    "columns": torch.arange(24.0, 48.0).reshape(4, 6),
    "small": torch.arange(3.0),
    "large": torch.arange(400.0).reshape(20, 20),
    "plain": torch.arange(5.0),
}
RECIPES = [
    recipe("small.made", "small", lambda t: t * 3),
    recipe(["sum", "difference"], ["rows", "columns"], lambda a, b: (a + b.t(), a - b.t())),
    recipe("plain.made", "plain", lambda t: t + 1),
    recipe("large.made", "large", lambda t: t.t().contiguous()),
]
MADE = {
    "small.made": WHOLES["small"] * 3, "plain.made": WHOLES["plain"] + 1, "large.made": WHOLES["large"].t(),
    "sum": WHOLES["rows"] + WHOLES["columns"].t(), "difference": WHOLES["rows"] - WHOLES["columns"].t(),
}
MESHES = {
    "rows of all": ((4,), [Shard(0)], [Shard(0)], 1),
    "two copies": ((2, 2), [Replicate(), Shard(0)], [Replicate(), Shard(0)], 2),
    "two copies along the last": ((2, 2), [Shard(0), Replicate()], [Shard(0), Replicate()], 2),
    "one tensor on half of the mesh": ((2, 2), [Replicate(), Shard(0)], [Shard(0), Shard(1)], 1),
    "three copies": ((3, 2), [Replicate(), Shard(1)], [Replicate(), Shard(0)], 3),
}


def tensors_on(mesh: DeviceMesh, placements: list[Any], of_large: list[Any]) -> dict[str, torch.Tensor]:
    ways = {"rows": placements, "columns": placements, "large": of_large}
    ways["small"] = [p if p.is_replicate() else Shard(0) for p in placements]
    return {name: cut(mesh, t, ways[name]) if name in ways else t.clone() for name, t in WHOLES.items()}


@pytest.mark.parametrize("kind", MESHES)
def test_each_product_is_made_once_for_each_copy_of_the_module(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    sizes, placements, of_large, copies = MESHES[kind]
    ranks, post = range(torch.Size(sizes).numel()), Post(monkeypatch)
    gathered: dict[int, list[Any]] = {}
    peers = {}
    for rank in ranks:
        with as_rank(rank, sizes) as mesh:
            tensors = tensors_on(mesh, placements, of_large)
            found = Ranks(tensors.values())
            assert found.publishes and found.own == rank and found.mesh == mesh
            peers[rank] = found.peers
            uses = products(RECIPES, tensors)
            # In the order of the module, whatever the order of recipes: all ranks gather in that.
            assert [use.name for use in uses] == ["sum", "small.made", "large.made", "plain.made"]
            planned = plan(uses, tensors, found, PinnedMemory())
            assert [one.product for one in planned] == uses
            gathered[rank] = []
            for one in planned:
                inputs = [tensors[name] for name in one.product.inputs]
                assert one.is_here == (one.owner == rank) == bool(one.host)
                assert [(tuple(h.shape), h.dtype) for h in one.host] == (list(one.product.made) if one.host else [])
                item = one.item(inputs)
                assert (item.slot is not None) == one.is_here
                assert item.making == (one.product.making if one.is_here else 0)
                if one.is_here:
                    wholes = sum(t.numel() * 4 for t, gather in zip(inputs, one.gathers, strict=True) if gather.lane)
                    assert item.gathered == wholes <= item.gathering, "of all inputs; what lies here whole takes nothing"
                if one.lane or one.is_here:
                    gathered[rank].append((one, one.begin(inputs)))
    assert len(set(peers.values())) == copies
    assert all(rank in peers[rank] and len(peers[rank]) * copies == len(ranks) for rank in ranks)
    post.deliver()
    made: dict[tuple[int, ...], list[str]] = {}
    for rank, listed in gathered.items():
        for one, gathering_ in listed:
            if gathering_.wait is not None:
                gathering_.wait()
            if one.is_here:
                values = one.product.recipe.make(*gathering_.tensors)
                values = [values] if isinstance(values, torch.Tensor) else values
                for name, value in zip(one.product.outputs, values, strict=True):
                    assert torch.equal(value, MADE[name]), (rank, name)
                made.setdefault(peers[rank], []).extend(one.product.outputs)
            elif one.lane and one.product.name == "large.made":
                assert not gathering_.tensors, "no other rank has memory for it"
    for names in made.values():
        once = [name for name in names if kind == "one tensor on half of the mesh" and name in ("sum", "difference", "small.made")]
        for name in once[: len(once) // 2]:
            names.remove(name)  # each half shares these among itself
        assert sorted(names) == sorted(MADE)
    assert len(made) == copies


def test_work_goes_by_bytes_to_all_ranks() -> None:
    """Four matrices of one size and a vector: no rank has two of the matrices."""
    owners = []
    for rank in range(4):
        with as_rank(rank, (4,)) as mesh:
            tensors = {f"w{n}": cut(mesh, torch.zeros(8, 8), [Shard(0)]) for n in range(4)}
            tensors["b"] = cut(mesh, torch.zeros(8), [Shard(0)])
            uses = products([recipe("*.made", "*")], tensors)
            planned = plan(uses, tensors, Ranks(tensors.values()), PinnedMemory())
            owners.append([one.owner for one in planned])
    assert all(one == owners[0] for one in owners) and sorted(owners[0][:4]) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [kind for kind in MESHES if kind != "one tensor on half of the mesh"])
def test_a_shard_of_a_copy_is_known_to_itself_as_to_the_others(kind: str) -> None:
    sizes, placements, of_large, count = MESHES[kind]
    said = {}
    for rank in range(torch.Size(sizes).numel()):
        with as_rank(rank, sizes) as mesh:
            module = nn.Module()
            for name, tensor in tensors_on(mesh, placements, of_large).items():
                module._parameters[name] = tensor  # torch would look an operation up that another rank has made
            copy = copy_of(module)
            said[rank] = copy
            assert copy.ranks[copy.shard] == rank and copy.count == count and 0 <= copy.number < count
            numbered = f"t-{copy.number}" if count > 1 else "t"
            wanted = wc.Replica(numbered, shard=copy.shard, num_shards=len(copy.ranks), spot=True)
            assert copy.replica("t", spot=True) == wanted
            made = wct.gathered(module, [recipe("rows.made", "rows")])
            assert made.replica("t", spot=True) == wanted
    for rank, copy in said.items():
        assert all((said[other].number, said[other].ranks) == (copy.number, copy.ranks) for other in copy.ranks), rank
    assert sorted({copy.ranks for copy in said.values()}) == sorted({copy.ranks: 0 for copy in said.values()})
    assert sorted(r for ranks in {copy.ranks for copy in said.values()} for r in ranks) == list(said)


# What ranks tell each other


def test_all_hear_what_each_rank_of_a_mesh_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (2, 1, 3)
    ranks = torch.arange(6).reshape(sizes)
    # What each rank has heard after each dimension.
    heard = [{rank: [f"rank {rank}"] for rank in range(6)}]
    for dim in range(3):
        heard.append({r: [one for other in beside(ranks, dim, r) for one in heard[dim][other]] for r in range(6)})
    for own in range(6):
        with as_rank(own, sizes) as mesh:
            dims = [mesh.get_group(dim) for dim in range(3)]

            def gather(into: list[Any], told: list[Any], group: Any, dims: Any = dims, own: int = own) -> None:
                dim = dims.index(group)
                assert told == heard[dim][own]
                into[:] = [heard[dim][other] for other in beside(ranks, dim, own)]

            monkeypatch.setattr(dist, "all_gather_object", gather)
            assert sorted(told_by_all(mesh, f"rank {own}")) == [f"rank {rank}" for rank in range(6)]
    assert told_by_all(None, "alone") == ["alone"]


def beside(ranks: torch.Tensor, dim: int, rank: int) -> list[int]:
    """The ranks that differ from one along a dimension at most."""
    at: list[Any] = (ranks == rank).nonzero()[0].tolist()
    at[dim] = slice(None)
    return ranks[tuple(at)].tolist()


@pytest.mark.parametrize("mine", [False, True])
def test_one_rank_s_failure_is_raised_on_all(monkeypatch: pytest.MonkeyPatch, mine: bool) -> None:
    own = StageFailed("w", "send", "OSError: own", 1) if mine else None
    others = [None, ("x", "transform", "ValueError: no", 3), ("y", "send", "later", 2)]
    monkeypatch.setattr(agreement, "told_by_all", lambda mesh, told: [told, *others])
    with pytest.raises(StageFailed) as failed:
        raise_together(object(), own)
    error = failed.value
    if mine:
        assert error is own
    else:
        assert (error.tensor, error.stage, error.reason, error.rank) == ("x", "transform", "ValueError: no", 3)
        assert "transform of x failed on rank 3: ValueError: no" in str(error)
    monkeypatch.setattr(agreement, "told_by_all", lambda mesh, told: [told, None])
    assert raise_together(object(), None) is None


def test_ranks_that_would_make_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)}
    said = []
    monkeypatch.setattr(agreement, "told_by_all", lambda mesh, told: said.append(told) or [told])
    for recipes, tensors in [
        ([recipe("x", "a")], held),
        ([recipe("y", "a")], held),
        ([recipe("x", "b")], held),
        ([recipe("x", "a", lambda a: a.half())], held),
        ([recipe("x", "a", lambda a: a[:1])], held),
        ([recipe("x", "a"), recipe("y", "b")], held),
    ]:
        refuse_other_plans(None, products(recipes, tensors))
    refuse_other_plans(None, products([recipe("x", "a", lambda a: a.clone())], held))
    *different, same = said
    assert len({one[0] for one in different}) == len(different) and same[0] == said[0][0]
    monkeypatch.setattr(agreement, "told_by_all", lambda mesh, told: [told, ("other", 9, 4)])
    with pytest.raises(wc.Misuse, match="rank 4 makes 9 tensors and rank 0 makes 1, or of other names or shapes"):
        refuse_other_plans(None, products([recipe("x", "a")], held))


def test_numbers_become_the_largest_over_each_group_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"rows": torch.tensor([1, 9, 3], dtype=torch.int32), "columns": torch.tensor([7, 2, 2], dtype=torch.int32)}

    def reduce(tensor: torch.Tensor, op: Any, group: str) -> None:
        assert op == dist.ReduceOp.MAX
        tensor.copy_(torch.maximum(tensor, others[group]))

    monkeypatch.setattr(dist, "all_reduce", reduce)
    mine = torch.tensor([4, 4, 4], dtype=torch.int32).numpy()
    exchange_over(["rows", "columns"], "cpu")(mine)
    assert mine.tolist() == [7, 9, 4]
    monkeypatch.setattr(dist, "get_backend", lambda group: {"rows": "gloo", "columns": "cpu:gloo,cuda:nccl"}[group])
    exchange_over(["rows"])(mine)
    assert mine.tolist() == [7, 9, 4]


# Names of recipes, and conversions shard by shard


def test_stars_are_filled_in_their_order() -> None:
    held = {f"l.{n}.{x}.w": torch.zeros(n + 1) for n in range(2) for x in "ab"} | {"l.0.b.s": torch.zeros(7), "l.1.b.s": torch.zeros(8)}
    uses = products([recipe(["made.*.of", "s.*"], ["l.*.b.w", "l.*.b.s"], lambda w, s: (w, s))], held)
    assert [(use.outputs, use.inputs) for use in uses] == [
        (("made.0.of", "s.0"), ("l.0.b.w", "l.0.b.s")), (("made.1.of", "s.1"), ("l.1.b.w", "l.1.b.s")),
    ]
    assert [use.nbytes for use in uses] == [4 + 28, 8 + 32]
    uses = products([recipe("*/*", "l.*.*.w")], held)
    assert [use.outputs for use in uses] == [("0/a",), ("0/b",), ("1/a",), ("1/b",)]
    assert [use.inputs for use in products([recipe("x", "l.0.a.w")], held | {"l.0.aaw": torch.zeros(1), "l10.a.w": torch.zeros(1)})] == [("l.0.a.w",)]


def test_bytes_of_a_function_that_is_described_by_another() -> None:
    """At least what it returns; what it says it needs, if that is more."""
    held = {"a": torch.zeros(4)}
    for said, counted in ((None, 16), (3, 16), (100, 100)):
        [use] = products([recipe("x", "a", lambda a: a, like=lambda a: torch.empty(4), making=said)], held)
        assert (use.making, use.nbytes) == (counted, 16)
    [use] = products([recipe("x", "a", lambda a: (a + 1) * 2, making=9999)], held)
    assert use.making == 32, "what was seen counts"


def test_each_rank_converts_its_own_shard_by_the_first_cast_that_fits() -> None:
    for rank, rows in ((0, 2), (1, 2), (2, 1), (3, 0)):
        with as_rank(rank, (4,)) as mesh:
            tensors = {
                "a.w": cut(mesh, torch.zeros(5, 3), [Shard(0)]),
                "a.steps": torch.zeros(3, dtype=torch.int64),
                "b.w": torch.zeros(6),
                "c.w": torch.zeros(6, dtype=torch.bfloat16),
                "other": torch.zeros(6),
            }
            casts = [cast("b.*", torch.float16, readers=1), cast("*.w", torch.bfloat16), cast("a.*", torch.float16)]
            found = {one.name: one for one in converted(casts, tensors, PinnedMemory())}
            assert {name: one.dtype for name, one in found.items()} == {"a.w": torch.bfloat16, "b.w": torch.float16}
            assert found["b.w"].host is None, "one reader: made as bytes are read"
            assert tuple(found["a.w"].host.shape) == (rows, 3) and found["a.w"].host.dtype == torch.bfloat16
    assert cast("x", torch.float32) == Cast("x", torch.float32, 2)
