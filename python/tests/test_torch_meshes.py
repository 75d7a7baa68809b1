"""Modules over several device meshes: real gloo ranks train, engines of several layouts have each step to the bit."""

import itertools
import random
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

import weightcast as wc  # noqa: E402
from weightcast.copies import copies_of  # noqa: E402
from weightcast.testing import fp8  # noqa: E402
from weightcast.torch.ranges import boxes_of  # noqa: E402

from .conftest import SOON  # noqa: E402
from .jobs import empty_engine, engine_shards, ranks  # noqa: E402
from .programs import flat_trainer, mesh_trainer  # noqa: E402
from .test_torch import bits  # noqa: E402

#: Along which dimension engines of tensor parallelism cut, and those of expert parallelism.
TENSOR_PARALLEL = {"up.weight": 0, "up.bias": 0, "down.weight": 1, "experts.w": 1}
EXPERT_PARALLEL = {"experts.w": 0}
ENGINES = {"tp1": (1, {}), "tp2": (2, TENSOR_PARALLEL), "tp4": (4, TENSOR_PARALLEL), "ep2": (2, EXPERT_PARALLEL)}


@pytest.fixture
def server(patient_server):
    return patient_server


def test_ranks_with_equal_holdings_are_copies() -> None:
    """By trying all ways of dealing ranks out: there can be no more copies, and each of them is whole."""
    drawn = random.Random(3)
    tables = [[drawn.randrange(3) for _ in range(drawn.randint(1, 5))] for _ in range(40)]
    for table in [*tables, [0] * 5, list(range(5)), [0, 1] * 3, []]:
        copies = copies_of(table)
        assert sorted(rank for copy in copies for rank in copy) == list(range(len(table)))
        for copy in copies:
            assert copy == sorted(copy) and {table[rank] for rank in copy} == set(table)
        assert len(copies) == most(table), table


def most(table: list[int]) -> int:
    """The most whole copies into which ranks can be dealt out."""
    best = 0
    for dealt in itertools.product(range(len(table)), repeat=len(table)):
        held: dict[int, set[int]] = {}
        for rank, copy in enumerate(dealt):
            held.setdefault(copy, set()).add(table[rank])
        if held and all(each == set(table) for each in held.values()):
            best = max(best, len(held))
    return best


def test_copies_are_numbered_along_the_replicated_dimension() -> None:
    mesh = list(itertools.product(range(2), range(3), range(2)))
    # The middle dimension holds copies.
    copies = copies_of([(a, c) for a, _, c in mesh])
    assert [[mesh[rank] for rank in copy] for copy in copies] == [
        [(a, b, c) for a in range(2) for c in range(2)] for b in range(3)
    ]


@pytest.mark.parametrize("world", [4, 8])
def test_each_step_arrives_whole(group, server, tmp_path, world):
    with ranks(mesh_trainer, world, server.address, str(tmp_path)):
        for name, (_, copies) in mesh_trainer.CASES.items():
            if world in copies:
                receive(group, name, copies[world], fp8=name in mesh_trainer.FP8)


@pytest.mark.parametrize("world", [2, 4])
def test_each_step_of_fsdp1_arrives_whole(group, server, tmp_path, world):
    """In place, and in FP8: ranks hold ranges that begin and end within rows, and blocks with several ranks."""
    with ranks(flat_trainer, world, server.address, str(tmp_path)):
        for name, (_, copies) in flat_trainer.CASES.items():
            if world in copies:
                receive(group, name, copies[world], fp8=True)


def receive_fp8(group, model: str) -> Iterator[None]:
    """Follows the same job's FP8 at each `next`."""
    memory: dict[str, torch.Tensor] = {}
    layout = wc.Layout()
    for version in itertools.count():
        expected = dict(mesh_trainer.expected(version))
        for name in ("up.weight", "down.weight"):
            expected[name], expected[f"{name}_scale_inv"] = fp8.quantise(expected[name], mesh_trainer.BLOCK)
        if version == 0:
            for name, tensor in expected.items():
                memory[name] = torch.zeros_like(tensor)
                layout.add(memory[name], name)
            rollout = group("done", [layout], model=f"{model}-fp8")[0]
        else:
            rollout.wait(lambda held, v=version: v in held, deadline=15 * SOON)
            rollout.update(version, deadline=3 * SOON)
            for name, tensor in expected.items():
                assert bits(memory[name]) == bits(tensor), (model, name, version)
        yield


def test_boxes_of_a_range() -> None:
    """One behind the other they are the range, in as few boxes as the number of dimensions allows."""
    for shape in [(), (5,), (4, 3), (1, 7), (7, 1), (3, 2, 4), (2, 1, 3, 2)]:
        whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
        for first, end in itertools.combinations(range(whole.numel() + 1), 2):
            boxes = list(boxes_of(shape, first, end - first))
            found = []
            for start, length in boxes:
                box = whole
                for dim, (at, count) in enumerate(zip(start, length, strict=True)):
                    box = box.narrow(dim, at, count)
                found += box.flatten().tolist()
            assert found == list(range(first, end)), (shape, first, end)
            assert len(boxes) <= max(1, 2 * len(shape) - 1), (shape, first, end)
        assert list(boxes_of(shape, 0, 0)) == []


def receive(group, name: str, copies: int, fp8: bool) -> None:
    """Follows one job with engines of all layouts, and compares each of them after each step."""
    first = mesh_trainer.expected(0)
    engines = {}
    for engine, (shards, cuts) in ENGINES.items():
        memories, layouts = empty_engine(first, shards, cuts)
        engines[engine] = (memories, group(engine, layouts, model=name))
    done = group("done", empty_engine(first, 1, {})[1], model=name)[0]
    beside = receive_fp8(group, name) if fp8 else itertools.repeat(None)
    next(beside)
    names = {f"trainer-{copy}" for copy in range(copies)} if copies > 1 else {"trainer"}
    for version in range(1, mesh_trainer.STEPS + 1):
        held = done.wait(lambda held, v=version: names <= held.get(v, set()), deadline=15 * SOON)
        assert {one for one in held[version] if one.startswith("trainer")} == names
        tensors = mesh_trainer.expected(version)
        for engine, (memories, members) in engines.items():
            updated = members.all(lambda handle, v=version: handle.update(v, deadline=3 * SOON))
            assert all(one.changed for one in updated)
            for shard, (memory, wanted) in enumerate(
                zip(memories, engine_shards(tensors, *ENGINES[engine]), strict=True)
            ):
                for key, (_, tensor) in wanted.items():
                    assert bits(memory[key]) == bits(tensor), (name, engine, shard, key, version)
        done.update(version, deadline=3 * SOON)
        next(beside)
