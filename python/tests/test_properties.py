"""Random models over random meshes: every slice arrives to the bit, every planted fault is found."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

#: numpy's type in which a tensor is stored, and its real name where numpy has none.
DTYPES = [("f4", None), ("f2", None), ("u1", None), ("i8", None), ("u2", "BF16"), ("u1", "F8_E4M3")]
CASES = 60
FAULTS = 6


@dataclass(frozen=True)
class Tensor:
    """A logical tensor: random bits of a type."""

    value: np.ndarray
    dtype: str | None
    #: Another name of the same tensor.
    alias: str | None = None


@dataclass(frozen=True)
class Cut:
    """What one shard holds of a tensor: `arguments` go to `part`, `window` to numpy."""

    arguments: dict[str, int]
    window: tuple[slice, ...]


def random_bits(draw: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    count = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(draw.bytes(count), dtype).reshape(shape)


def random_shape(draw: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(draw.choice([0, 1, 2, 3, 5, 8, 13, 33])) for _ in range(draw.integers(0, 5)))


def random_model(draw: np.random.Generator) -> list[dict[str, Tensor]]:
    """Families of tensors: those of one family can be fused along their first dimension."""
    families = []
    for index in range(draw.integers(1, 6)):
        dtype, real = DTYPES[draw.integers(len(DTYPES))]
        shape = random_shape(draw)
        members = int(draw.integers(1, 4)) if shape else 1
        family = {}
        for member in range(members):
            own = (int(draw.integers(0, 20)), *shape[1:]) if member else shape
            alias = f"{index}.{member}.tied" if members == 1 and draw.random() < 0.3 else None
            family[f"{index}.{member}"] = Tensor(random_bits(draw, own, dtype), real, alias)
        families.append(family)
    # A model of nothing but empty tensors shows little.
    families.append({"last": Tensor(random_bits(draw, (17, 6), "f4"), None)})
    return families


def chunk(size: int, dim: int, index: int, of: int) -> Cut:
    each = -(-size // of)
    window = slice(min(size, index * each), min(size, (index + 1) * each))
    return Cut({"dim": dim, "index": index, "of": of}, (slice(None),) * dim + (window,))


def span(dim: int, start: int, stop: int) -> Cut:
    arguments = {"dim": dim, "start": start, "length": stop - start}
    return Cut(arguments, (slice(None),) * dim + (slice(start, stop),))


def random_cuts(
    draw: np.random.Generator, tensors: list[Tensor], shards: int, once: bool
) -> list[list[Cut] | None]:
    """For each shard, one cut of each tensor of a family, or nothing. With `once`, no element is
    held twice."""
    ndim = tensors[0].value.ndim
    kind = draw.choice(["owner"] if once else ["owner", "all"]) if ndim == 0 else draw.choice(
        ["chunks", "chunks", "spans", "owner"] + ([] if once else ["all", "copies"])
    )
    whole = [Cut({}, ()) for _ in tensors]
    if kind == "owner":
        owner = draw.integers(shards)
        return [whole if shard == owner else None for shard in range(shards)]
    if kind == "all":
        return [whole] * shards
    dim = int(draw.integers(ndim))
    if kind == "spans":
        sizes = [t.value.shape[dim] for t in tensors]
        bounds = [[0, *sorted(draw.integers(0, n + 1, shards - 1).tolist()), n] for n in sizes]
        if dim > 0:
            bounds = [bounds[0]] * len(tensors)  # fused along the first: the others must agree
        return [[span(dim, b[s], b[s + 1]) for b in bounds] for s in range(shards)]
    divisors = [d for d in range(1, shards + 1) if shards % d == 0]
    copies = int(draw.choice(divisors)) if kind == "copies" else 1
    return [
        [chunk(t.value.shape[dim], dim, shard // copies, shards // copies) for t in tensors]
        for shard in range(shards)
    ]


class Side:
    """One group's memory: buffers with what must be in them."""

    def __init__(
        self, draw: np.random.Generator, model: list[dict[str, Tensor]], shards: int,
        filled: bool, once: bool = False,
    ) -> None:
        self.layouts = [wc.Layout() for _ in range(shards)]
        self.buffers: list[list[np.ndarray]] = [[] for _ in range(shards)]
        self.expected: list[list[np.ndarray]] = [[] for _ in range(shards)]
        self.filled = filled
        for family in model:
            names, tensors = list(family), list(family.values())
            if len(names) > 1 and draw.random() < 0.5:
                names, tensors = [[n] for n in names], [[t] for t in tensors]
            else:
                names, tensors = [names], [tensors]
            for fused_names, fused in zip(names, tensors, strict=True):
                cuts = random_cuts(draw, fused, shards, once)
                tie = once or draw.random() < 0.5
                for shard, held in enumerate(cuts):
                    if held is not None:
                        self.add(shard, fused_names, fused, held, tie)

    def add(
        self, shard: int, names: list[str], tensors: list[Tensor], cuts: list[Cut], tie: bool
    ) -> None:
        local = [t.value[cut.window] for t, cut in zip(tensors, cuts, strict=True)]
        content = np.concatenate(local, axis=0) if len(local) > 1 else local[0].copy()
        parts = [
            wc.part(name, shape=t.value.shape, **cut.arguments)
            for name, t, cut in zip(names, tensors, cuts, strict=True)
        ]
        layout, dtype = self.layouts[shard], tensors[0].dtype
        layout.add(self.keep(shard, content), parts, dtype=dtype)
        if tensors[0].alias is None:
            return
        other = wc.part(tensors[0].alias, shape=tensors[0].value.shape, **cuts[0].arguments)
        if tie:
            layout.also(other)
        else:
            layout.add(self.keep(shard, content), other, dtype=dtype)

    def keep(self, shard: int, content: np.ndarray) -> np.ndarray:
        content = np.ascontiguousarray(content).reshape(content.shape)
        buffer = content.copy() if self.filled else np.zeros_like(content)
        self.buffers[shard].append(buffer)
        self.expected[shard].append(content)
        return buffer

    def check(self) -> None:
        for shard, pairs in enumerate(zip(self.buffers, self.expected, strict=True)):
            for index, (buffer, content) in enumerate(zip(*pairs, strict=True)):
                assert buffer.tobytes() == content.tobytes(), (shard, index, content.shape)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_meshes_to_the_bit(group, seed):
    draw = np.random.default_rng(seed)
    model = random_model(draw)
    source = Side(draw, model, int(draw.integers(1, 9)), filled=True)
    target = Side(draw, model, int(draw.integers(1, 9)), filled=False)
    trainer = group("trainer", source.layouts, role="trainer")
    trainer.all(lambda h: h.publish(seed, deadline=SOON, seal=True))
    way = "tcp" if seed % 2 else "direct"
    rollout = group("rollout", target.layouts, way=way)
    for moved in rollout.all(lambda h: h.replicate("latest", deadline=SOON)):
        assert moved.version == seed and moved.verified == moved.bytes
    target.check()
    trainer.all(lambda h: h.unpublish(deadline=SOON))
    # What was read is as good a source as what was published.
    again = Side(draw, model, int(draw.integers(1, 9)), filled=False)
    relayed = group("again", again.layouts, way=way)
    for moved in relayed.all(lambda h: h.replicate(seed, deadline=SOON)):
        assert moved.source == "rollout"
    again.check()
    source.check()


def bit_flip(draw: np.random.Generator, buffer: np.ndarray) -> None:
    octets = buffer.reshape(-1).view("u1")
    octets[draw.integers(octets.size)] ^= 1 << int(draw.integers(8))


def swap(draw: np.random.Generator, buffer: np.ndarray, rows: bool) -> bool:
    """Swaps two different rows, or elements; false if there are none."""
    if buffer.size == 0:
        return False
    octets = buffer.reshape(-1).view("u1")
    items = octets.reshape(len(buffer) if rows and buffer.ndim else buffer.size, -1)
    one = int(draw.integers(len(items)))
    others = [i for i in range(len(items)) if items[i].tobytes() != items[one].tobytes()]
    if not others:
        return False
    two = int(draw.choice(others))
    items[[one, two]] = items[[two, one]]
    return True


def plant(draw: np.random.Generator, buffers: list[np.ndarray], kind: str) -> np.ndarray:
    """Puts one fault into one of the buffers; returns that buffer."""
    while True:
        buffer: Any = buffers[draw.integers(len(buffers))]
        if kind == "bit flip" and buffer.size:
            bit_flip(draw, buffer)
            return buffer
        if kind != "bit flip" and swap(draw, buffer, rows=kind == "row swap"):
            return buffer


@pytest.mark.parametrize("way", ["direct", "tcp"])
@pytest.mark.parametrize("seed", range(12))
def test_every_planted_fault_is_found(group, seed, way):
    draw = np.random.default_rng([seed, 1])
    model = random_model(draw)
    # Held once: a fault in a copy that nobody reads would harm nobody.
    source = Side(draw, model, int(draw.integers(1, 5)), filled=True, once=True)
    target = Side(draw, model, int(draw.integers(1, 5)), filled=False)
    trainer = group("trainer", source.layouts, role="trainer")
    trainer.all(lambda h: h.publish(3, deadline=SOON, seal=True))
    rollout = group("rollout", target.layouts, way=way)
    buffers = [buffer for shard in source.buffers for buffer in shard]
    tensors = [(name, tensor) for family in model for name, tensor in family.items()]
    names = {name for name, _ in tensors} | {tensor.alias for _, tensor in tensors}
    for fault in range(FAULTS):
        kind = ["bit flip", "row swap", "element swap"][fault % 3]
        before = [buffer.copy() for buffer in buffers]
        plant(draw, buffers, kind)
        errors: list[Any] = []
        for error in rollout.each(lambda h: h.replicate("latest", deadline=SOON)):
            assert isinstance(error, wc.DigestMismatch), (kind, error)
            assert error.version == 3 and error.source_replica == "trainer"
            errors.append(error)
        # Whoever read it says where it is: in a slice that the source has changed.
        assert {e.cause for e in errors} - {None} == {"source"}, [e.detail for e in errors]
        assert all(e.tensor in names for e in errors if e.cause), [e.detail for e in errors]
        assert [h.version for h in rollout.handles] == [None] * len(rollout.handles)
        for buffer, good in zip(buffers, before, strict=True):
            buffer[...] = good
    # Nothing but the bits was wrong.
    rollout.all(lambda h: h.replicate("latest", deadline=SOON))
    target.check()
