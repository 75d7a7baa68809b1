"""Trees of JAX arrays without JAX: which boxes a process publishes, under which names, and what each publication copies."""

import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weightcast as wc
from weightcast.adapters.catalog import Entry

from .stand_ins import stand_in

OURS = [f"weightcast.jax{rest}" for rest in ("", ".layout", ".leaves", ".replicas")]


class Data:
    """What lies on one device."""

    def __init__(self, values: np.ndarray, log: list[str]) -> None:
        self.values, self.log = values, log

    def copy_to_host_async(self) -> None:
        self.log.append("begun")

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        self.log.append("taken")
        return self.values


class Array:
    """An array whose boxes lie on devices: `places` says, by process, the indices of its devices."""

    log: list[str] = []
    process = 0

    def __init__(self, values: np.ndarray, places: dict[int, list[tuple[slice, ...]]] | None = None) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        whole = tuple(slice(None) for _ in values.shape)
        self.places = places or {0: [whole]}

    @property
    def addressable_shards(self) -> list[Any]:
        return [SimpleNamespace(index=index, data=Data(self.values[index], self.log)) for index in self.places.get(self.process, ())]

    @property
    def sharding(self) -> Any:
        devices = [(SimpleNamespace(process_index=p), index) for p, indices in self.places.items() for index in indices]
        by_id = {id(device): (device, index) for device, index in devices}

        class Map:
            def items(self) -> Iterator[tuple[Any, Any]]:
                return iter(by_id.values())

        return SimpleNamespace(devices_indices_map=lambda shape: Map(), device_set=[device for device, _ in devices])


def flattened(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, dict):
        return [leaf for key, value in sorted(tree.items()) for leaf in flattened(value, (*path, key))]
    return [(path, tree)]


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_in(monkeypatch, "jax", {
        "jax": {"Array": Array, "process_index": lambda: Array.process},
        "jax.tree_util": {"tree_flatten_with_path": lambda tree: (flattened(tree), None), "keystr": lambda path, simple, separator: separator.join(path)},
    }, OURS)
    monkeypatch.setattr(Array, "process", 0)
    monkeypatch.setattr(Array, "log", [])
    return importlib.import_module("weightcast.jax.layout")


def rows(*cuts: int) -> list[tuple[slice, ...]]:
    return [(slice(first, end), slice(None)) for first, end in zip(cuts, cuts[1:], strict=False)]


class Read:
    """What a layout has of which published tensor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.added: list[tuple[np.ndarray, list[Any]]] = []
        real, part_of, described = wc.Layout.add, module.layouts.part_of, {}

        def noted(published: Any) -> Any:
            part = part_of(published)
            described[id(part)] = published, part
            return part

        def add(layout: wc.Layout, memory: Any, parts: list[Any], **named: Any) -> wc.Layout:
            assert not memory.flags.writeable, "nothing is read into it"
            self.added.append((memory, [described[id(part)][0] for part in parts]))
            return real(layout, memory, parts, **named)

        monkeypatch.setattr(module.layouts, "part_of", noted)
        monkeypatch.setattr(wc.Layout, "add", add)

    def into(self, tensors: dict[str, np.ndarray], counts: dict[str, np.ndarray]) -> None:
        for memory, parts in self.added:
            at, flat = 0, memory.reshape(-1)
            for part in parts:
                box = tuple(slice(s, s + n) for s, n in zip(part.start, part.length, strict=True))
                size = int(np.prod(part.length))
                tensors[part.name][box] = flat[at : at + size].reshape(part.length)
                counts[part.name][box] += 1
                at += size
            assert at == flat.size


@pytest.mark.parametrize("turned", [False, True])
def test_each_publication_has_the_arrays_of_the_moment(monkeypatch: pytest.MonkeyPatch, jax: Any, turned: bool) -> None:
    """Two processes: one array cut over all devices, one that each process has on two of them, a stack of layers."""
    state: dict[str, Any] = {}

    def step(version: int) -> None:
        draw = np.random.default_rng(version)
        cut, both, stack = draw.random((6, 4), "f4"), draw.random((2, 3), "f4"), draw.random((2, 4, 3), "f4")
        state["params"] = {"b": {"kernel": Array(cut, {0: rows(0, 2, 3), 1: rows(3, 6)})}, "norm": Array(both, {0: rows(0, 2) * 2, 1: rows(0, 2)}),
                           "layers": Array(stack, {p: [(slice(p, p + 1), slice(None), slice(None))] for p in range(2)})}
        turn = (lambda a: a.swapaxes(-1, -2)) if turned else (lambda a: a)
        state["expected"] = {"model.b.weight": turn(cut), "norm": both} | {f"layer.{e}.w": turn(stack[e]) for e in range(2)}

    step(0)
    names = wc.NameMap({"*.kernel": "model.*.weight", "layers": ("layer.{expert}.w",)})
    transpose = ("*.weight", "layer.*") if turned else ()
    expect = {name: Entry(value.shape, "F32") for name, value in state["expected"].items()}
    reads, copies = [], []
    for process in range(2):
        Array.process = process
        with monkeypatch.context() as patch:
            reads.append(Read(patch, jax))
            copies.append(jax.layout(lambda: state["params"], names=names, transpose=transpose, expect=expect).copies)
    for version in (1, 2):
        step(version)
        for process, copy in enumerate(copies):
            Array.process = process
            Array.log.clear()
            copy.out()
            assert Array.log == sorted(Array.log), "all copies have begun before the first is waited for"
        found = {name: np.zeros(value.shape, "f4") for name, value in state["expected"].items()}
        counts = {name: np.zeros(value.shape, int) for name, value in state["expected"].items()}
        for read in reads:
            read.into(found, counts)
        for name, value in state["expected"].items():
            assert np.array_equal(found[name], value), (version, name)
            assert (counts[name] == (2 if name == "norm" else 1)).all(), "each box once for each process"


def test_a_tree_that_has_changed_its_form_is_not_published(jax: Any) -> None:
    state = {"w": Array(np.ones((4, 2), "f4"), {0: rows(0, 2)}), "v": Array(np.ones((2, 2), "f4"))}
    copies = jax.layout(lambda: state).copies
    assert copies
    copies.out()
    changes: list[Callable[[], Any]] = [
        lambda: Array(np.ones((4, 3), "f4"), {0: rows(0, 2)}), lambda: Array(np.ones((4, 2), "f2"), {0: rows(0, 2)}),
        lambda: Array(np.ones((4, 2), "f4"), {0: rows(0, 4)}), lambda: Array(np.ones((4, 2), "f4"), {0: rows(0, 2, 4)}),
    ]
    kept = state["w"]
    for change in changes:
        state["w"] = change()
        with pytest.raises(RuntimeError, match="w has another shape, type or sharding than when its layout was made"):
            copies.out()
    del state["w"]
    with pytest.raises(RuntimeError, match="w is not in the tree any more, which has 1 arrays"):
        copies.out()
    state["w"] = kept
    state["x"] = "no array"  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="x is a str and no array of JAX"):
        copies.out()
    del state["x"]
    state["more"] = Array(np.ones(1, "f4"))
    copies.out()
    with pytest.raises(wc.Misuse, match="published, not filled"):
        copies.into((1, 1))


def test_what_a_tree_may_not_have(jax: Any) -> None:
    for tree, options, said in (
        ({"w": Array(np.ones(3, "c8"))}, {}, "w has dtype complex64"),
        ({"w": Array(np.ones(3, "f4"))}, {"transpose": "w"}, r"w has shape \(3,\), and nothing to transpose"),
        ({"w": Array(np.ones((3, 2), "f4"))}, {"expect": {"w": Entry((2, 3), "F32")}}, r"w is published as \[3, 2\], and is \[2, 3\]"),
        ("tree", {}, "the tree is a str and no array of JAX"),
    ):
        with pytest.raises(wc.WeightcastError, match=said):
            jax.layout(lambda tree=tree: tree, **options)
    tree = {"a": Array(np.ones((3, 2), "f4")), "b": Array(np.ones(3, "c8"))}
    layout = jax.layout(lambda: tree, rename=lambda name: None if name == "b" else f"m.{name}", transpose="m.a", expect={"m.a": Entry((2, 3), "F32")})
    assert len(layout) == 1


def test_processes_with_equal_boxes_are_copies(jax: Any) -> None:
    replica = importlib.import_module("weightcast.jax.replicas").replica
    halves = {0: rows(0, 2), 1: rows(2, 4), 2: rows(0, 2), 3: rows(2, 4)}
    tree = {"w": Array(np.ones((4, 2), "f4"), halves), "v": Array(np.ones((4, 2), "f4"), {p: rows(0, 4) for p in range(4)})}
    found = []
    for process in range(4):
        Array.process = process
        found.append(replica("t", tree, spot=True))
    assert found == [wc.Replica(f"t-{p // 2}", shard=p % 2, num_shards=2, spot=True) for p in range(4)]
    Array.process = 1
    assert replica("t", {"w": Array(np.ones((4, 2), "f4"), {1: rows(0, 2), 3: rows(2, 4)})}) == wc.Replica("t", shard=0, num_shards=2)
    with pytest.raises(wc.Misuse, match=r"process 1 holds nothing of these arrays, only processes \[0\] do"):
        replica("t", {"w": Array(np.ones((4, 2), "f4"))})
