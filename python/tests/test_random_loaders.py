"""Loaders drawn at random, as engines write them: slices, chunks, joins, picked rows, casts, copies of experts, padding.
What a layout brings into parameters is what the loader itself would have put there."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import weightcast as wc  # noqa: E402
from weightcast.adapters.catalog import Catalog, catalog_of  # noqa: E402
from weightcast.adapters.live import LiveLayout, through_loader  # noqa: E402
from weightcast.adapters.live import layout as layouts  # noqa: E402
from weightcast.adapters.live.read import examine  # noqa: E402
from weightcast.adapters.live.through_loader import ThroughLoader  # noqa: E402

Weights = dict[str, torch.Tensor]
SHAPES = {"a": (6, 4), "b": (6, 4), "c": (4, 6), "d": (3, 4), "e": (8,), "f": (2, 3, 4), "g": (6, 4)}
#: What padding has before the loader has filled it, and what it fills it with.
BEFORE, PADDING = 7.0, 3.0


def checkpoint(seed: int) -> Weights:
    drawn = torch.Generator().manual_seed(seed)
    dtypes = {"b": torch.bfloat16, "g": torch.float16}
    return {n: torch.randn(s, generator=drawn).to(dtypes.get(n, torch.float32)) for n, s in SHAPES.items()}


@dataclass
class Value:
    """What a loader makes of published tensors."""

    tensors: set[str]
    of: Callable[[Weights], torch.Tensor]

    def then(self, do: Callable[[torch.Tensor], torch.Tensor]) -> "Value":
        return Value(self.tensors, lambda weights, before=self.of: do(before(weights)))


def value(draw: random.Random, sample: Weights) -> Value:
    name = draw.choice(sorted(sample))
    made = Value({name}, lambda weights: weights[name])
    for _ in range(draw.randint(0, 3)):
        now = made.of(sample)
        dim = draw.randrange(now.ndim)
        size = now.shape[dim]
        kind = draw.choice(["narrow", "chunk", "turn", "copy", "pick", "cast", "join", "double", "unsqueeze"])
        if kind == "narrow":
            start = draw.randrange(size)
            length = draw.randint(1, size - start)
            made = made.then(lambda t, d=dim, s=start, n=length: t.narrow(d, s, n))
        elif kind == "chunk":
            part = draw.randrange(len(now.chunk(2, dim)))
            made = made.then(lambda t, d=dim, at=part: t.chunk(2, d)[at])
        elif kind == "turn" and now.ndim == 2:
            made = made.then(lambda t: t.t())
        elif kind == "copy":
            made = made.then(lambda t: t.contiguous().clone())
        elif kind == "pick":
            rows = torch.tensor(draw.sample(range(size), draw.randint(1, size)))
            made = made.then(lambda t, d=dim, rows=rows: t.index_select(d, rows))
        elif kind == "cast" and draw.random() < 0.5:
            made = made.then(lambda t: t.to(torch.bfloat16))
        elif kind == "join":
            other = draw.choice(sorted(sample))
            joined = sample[other]
            if joined.ndim == now.ndim and _beside(joined, now, dim):
                first = made.of
                made = Value(made.tensors | {other}, lambda w, f=first, o=other, d=dim: torch.cat([f(w), w[o]], d))
        elif kind == "double" and draw.random() < 0.2:
            made = made.then(lambda t: t * 2)
        elif kind == "unsqueeze" and now.ndim < 3:
            made = made.then(lambda t: t.unsqueeze(0))
    return made


def _beside(one: torch.Tensor, other: torch.Tensor, along: int) -> bool:
    return all(n == m for dim, (n, m) in enumerate(zip(one.shape, other.shape, strict=True)) if dim != along)


@dataclass
class Loader:
    """Parameters, and the steps of a loader that fills them from what it is given."""

    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)
    steps: list[tuple[Value, str, Callable[[torch.Tensor, torch.Tensor], Any]]] = field(default_factory=list)
    parameters: Weights = field(default_factory=dict)

    def begin(self) -> "Loader":
        made = {n: torch.full(shape, BEFORE, dtype=dtype) for n, (shape, dtype) in self.shapes.items()}
        return Loader(self.shapes, self.steps, made)

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        given = dict(weights)
        for made, name, put in self.steps:
            if made.tensors <= given.keys():
                put(self.parameters[name], made.of(given))


def loader(draw: random.Random) -> Loader:
    sample, made = checkpoint(0), Loader()
    for number in range(draw.randint(1, 4)):
        one, name = value(draw, sample), f"p{number}"
        now = one.of(sample)
        shape, dtype = tuple(now.shape), draw.choice([now.dtype, now.dtype, torch.float32])
        kind = draw.choice(["plain", "plain", "fused", "padded", "padded first", "twice", "turned", "flat"])
        if kind == "fused":
            other = value(draw, sample)
            then = other.of(sample)
            if then.shape[1:] == now.shape[1:] and then.ndim == now.ndim:
                rows = shape[0]
                made.steps.append((other, name, lambda p, t, rows=rows: p[rows:].copy_(t)))
                shape = (rows + then.shape[0], *shape[1:])
            made.steps.append((one, name, lambda p, t: p.narrow(0, 0, t.shape[0]).copy_(t)))
        elif kind == "padded":
            made.steps.append((one, name, lambda p, t: (p[: t.shape[0]].copy_(t), p[t.shape[0] :].fill_(PADDING))))
            shape = (shape[0] + 2, *shape[1:])
        elif kind == "padded first":
            made.steps.append((one, name, lambda p, t: (p.fill_(PADDING), p[1 : 1 + t.shape[0]].copy_(t))))
            shape = (shape[0] + 2, *shape[1:])
        elif kind == "twice":
            made.steps.append((one, name, lambda p, t: (p[1].copy_(t), p[0].copy_(t))))
            shape = (2, *shape)
        elif kind == "turned" and now.ndim == 2:
            made.steps.append((one, name, lambda p, t: p.t().copy_(t)))
            shape = shape[::-1]
        else:
            made.steps.append((one, name, lambda p, t: p.copy_(t)))
        made.shapes[name] = (shape, dtype)
    draw.shuffle(made.steps)
    return made.begin()


class Listed:
    """Stands in for a layout: brings bytes of published tensors where pieces say, and nothing else."""

    def __init__(self) -> None:
        self.added: list[tuple[torch.Tensor, list[Any], int, bool]] = []
        self.apart = False

    def add(
        self,
        memory: torch.Tensor,
        parts: list[Any],
        *,
        along: int = 0,
        pad: bool = False,
        name: str | None = None,
    ) -> None:
        assert memory.is_contiguous()
        self.added.append((memory, list(parts), along, pad))

    def also(self, parts: list[Any], *, along: int = 0) -> None:
        pass

    def bring(self, weights: Weights) -> None:
        for memory, parts, along, pad in self.added:
            boxes = [(piece.tensor, piece.source) for piece in parts]
            came = [weights[n][tuple(slice(s, s + k) for s, k in zip(b.start, b.len, strict=True))] for n, b in boxes]
            whole = torch.cat(came, along) if came[0].ndim else came[0]
            assert whole.dtype == memory.dtype, "bytes are copied, not values"
            place = memory.narrow(along, 0, whole.shape[along]) if pad and whole.ndim else memory
            assert place.shape == whole.shape
            place.copy_(whole)


def reading_of(made: Loader, catalog: Catalog) -> Any:
    return examine(made.parameters, made.load, catalog, unused={"*": "drawn"}, unsourced={})


@pytest.fixture
def pieces_as_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (layouts, through_loader):
        monkeypatch.setattr(where, "part_of", lambda piece: piece)


@pytest.mark.usefixtures("pieces_as_parts")
@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("way", ["in place", "beside", "through the loader"])
def test_what_arrives_lies_where_the_loader_puts_it(block: int, way: str) -> None:
    followed, catalog = 0, catalog_of({n: (tuple(t.shape), t.dtype) for n, t in checkpoint(0).items()})
    for seed in range(block * 15, block * 15 + 15):
        made = loader(random.Random(seed))
        try:
            reading = reading_of(made, catalog)
        except wc.Misuse as error:
            # The one form that no layout has: pieces in two directions of one parameter.
            assert str(error).endswith("its pieces do not lie one behind the other along a dimension"), seed
            continue
        assert all(bool((p == BEFORE).all()) for p in made.parameters.values()), "nothing is loaded by reading"
        followed += 1
        through = way == "through the loader"
        live = ThroughLoader(reading, catalog, derived={}) if through else LiveLayout(reading)
        listed = Listed()
        live.layout(stage=True, beside=way == "beside", into=listed)  # type: ignore[arg-type]
        assert listed.apart == (way != "in place")
        for version in (1, 2):
            weights, alone = checkpoint(version), made.begin()
            before = {name: p.clone() for name, p in made.parameters.items()}
            listed.bring(weights)
            if way != "in place":
                assert all(torch.equal(p, before[name]) for name, p in made.parameters.items()), (seed, "in use")
            live.finish()
            alone.load(weights.items())
            for name, parameter in alone.parameters.items():
                assert torch.equal(made.parameters[name], parameter), (seed, way, version, name)
    assert followed >= 12
