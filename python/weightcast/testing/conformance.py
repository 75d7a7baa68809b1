"""What every adapter must do, whatever it adapts."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from .. import _core, selector
from ..adapters.catalog import Catalog, catalog_of
from ..adapters.live import LiveLayout
from ..server import serve
from .group import Group
from .publisher import Publisher

#: Ways to publish a checkpoint that are tried, each another random cut.
PUBLISHERS = 2
#: Names that are left out, and misspelt, one after the other.
NAMES = 3


class Nonconformity(AssertionError):
    """The adapter does something else than the engine's own loader."""


class Engine(Protocol):
    """What the kit needs to know of an engine and its adapter.

    Calls come one at a time. Each says the rank, for engines that keep it in global state.
    """

    #: Ranks that make up one replica.
    ranks: int

    def build(self, rank: int) -> Any:
        """A model of this rank; what its parameters hold does not matter."""

    def read(self, rank: int, model: Any, catalog: Catalog) -> LiveLayout:
        """The adapter's layout of the model."""

    def load(self, rank: int, model: Any, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Loads a checkpoint as the engine itself does."""

    def state(self, rank: int, model: Any) -> Mapping[str, torch.Tensor]:
        """All that has to be equal in the end, by name."""


@dataclass(frozen=True)
class Checkpoint:
    """What is published: shapes and types count, other values are drawn in their place."""

    tensors: Mapping[str, torch.Tensor]
    #: Further names under which a tensor is published, though it is in `tensors` once.
    tied: Mapping[str, str] = field(default_factory=dict)

    def version(self, number: int) -> dict[str, torch.Tensor]:
        """Random values of a version."""
        drawn = {}
        for at, (name, like) in enumerate(self.tensors.items()):
            source = torch.Generator().manual_seed(1_000_003 * number + at)
            drawn[name] = torch.randn(like.shape, generator=source).to(like.dtype)
        return drawn | {alias: drawn[name] for alias, name in self.tied.items()}


def conform(engine: Engine, checkpoint: Checkpoint, *, seed: int = 0) -> None:
    """Runs everything; raises `Nonconformity`, which says what differs.

    Names: read in any order, twice, scales first or last, the layout is the same; one that is
    missing or misspelt is an error that names it. Bytes: from publishers that cut the checkpoint at
    random places, over two versions, a repeated update, and one that is aborted when half of it is
    wrong, each rank's state is that of a one-shot load, to the bit.
    """
    draw = random.Random(seed)
    catalog = catalog_of({n: (t.shape, t.dtype) for n, t in checkpoint.version(0).items()})
    for rank in range(engine.ranks):
        _orders(engine, rank, catalog, draw)
    _names(engine, catalog, draw)
    for _ in range(PUBLISHERS):
        _updates(engine, checkpoint, catalog, draw)


def _orders(engine: Engine, rank: int, catalog: Catalog, draw: random.Random) -> None:
    model = engine.build(rank)
    before = {name: t.clone() for name, t in engine.state(rank, model).items()}
    want = _said(engine.read(rank, model, catalog))
    shuffled = draw.sample(sorted(catalog), len(catalog))
    scales = [name for name in shuffled if "scale" in name or "bias" in name]
    others = [name for name in shuffled if name not in scales]
    for what, names in {
        "another order": shuffled,
        "late scales": others + scales,
        "early scales": scales + others,
        "again": list(catalog),
    }.items():
        said = _said(engine.read(rank, model, {name: catalog[name] for name in names}))
        _equal(said, want, f"rank {rank}: the layout read in {what}")
    after = engine.state(rank, model)
    _equal_tensors(after, before, f"rank {rank}: reading the layout")


def _taken(live: LiveLayout) -> set[str]:
    pieces = {piece.tensor for record in live.records for piece in record.pieces}
    return pieces | set(live.whole)


def _said(live: LiveLayout) -> dict[str, Any]:
    return {record.name: record.as_json() for record in live.records}


def _names(engine: Engine, catalog: Catalog, draw: random.Random) -> None:
    model = engine.build(0)
    live = engine.read(0, model, catalog)
    needed = _taken(live) - {p.tensor for r in live.records if r.buffer for p in r.pieces}
    for name in draw.sample(sorted(needed), min(NAMES, len(needed))):
        others = {n: entry for n, entry in catalog.items() if n != name}
        try:
            engine.read(0, model, others)
        except _core.WeightcastError:
            pass
        else:
            raise Nonconformity(f"{name} is missing, and nobody says so")
        misspelt = name + "_of_another_model"
        try:
            engine.read(0, model, {**catalog, misspelt: catalog[name]})
        except _core.WeightcastError as error:
            if misspelt not in str(error):
                raise Nonconformity(
                    f"{misspelt} is published; the error has not its name: {error}"
                ) from error
        else:
            raise Nonconformity(f"{misspelt} is published, and nobody says that it is not used")


def _updates(
    engine: Engine, checkpoint: Checkpoint, catalog: Catalog, draw: random.Random
) -> None:
    models = [engine.build(rank) for rank in range(engine.ranks)]
    read = [engine.read(rank, model, catalog) for rank, model in enumerate(models)]
    publisher = Publisher(checkpoint.version(1), draw)
    with serve() as server:
        trainer = Group(
            server.address, "trainer", publisher.layouts, role="trainer", epoch="new"
        )
        rollout = Group(server.address, "rollout", [live.layout(stage=True) for live in read])

        def publish(number: int) -> None:
            trainer.all(lambda h: h.publish(number, seal=True))

        def update(number: int) -> list[bool]:
            changed = rollout.all(lambda h: h.update(selector.exact(number)).changed)
            for rank, live in enumerate(read):
                if changed[rank]:
                    live.finish()
            return changed

        def check(number: int, what: str) -> None:
            for rank, model in enumerate(models):
                once = engine.build(rank)
                engine.load(rank, once, checkpoint.version(number).items())
                got, want = engine.state(rank, model), engine.state(rank, once)
                _equal_tensors(got, want, f"rank {rank}: the state after {what}")

        for number, what in ((1, "the first update"), (2, "the second update")):
            publisher.fill(checkpoint.version(number))
            publish(number)
            update(number)
            check(number, what)
            if any(update(number)):
                raise Nonconformity("an update to the version that is held changes something")
            check(number, "a repeated update")
            trainer.all(lambda h: h.unpublish())
        publisher.fill(checkpoint.version(3))
        publish(3)
        publisher.spoil(draw.choice(sorted(_taken(read[0]))))
        try:
            update(3)
        except _core.WeightcastError:
            pass  # bytes have arrived, and do not count
        else:
            raise Nonconformity("a version that changed while it was published was taken")
        trainer.all(lambda h: h.unpublish())
        publisher.fill(checkpoint.version(4))
        publish(4)
        update(4)
        check(4, "an update after an aborted one")
        rollout.close()
        trainer.close()


def _equal(got: dict[str, Any], want: dict[str, Any], what: str) -> None:
    for name in sorted(want.keys() | got.keys()):
        if got.get(name) != want.get(name):
            raise Nonconformity(f"{what} differs at {name}: {got.get(name)}, not {want.get(name)}")


def _equal_tensors(
    got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor], what: str
) -> None:
    for name in sorted(want.keys() | got.keys()):
        if name not in got or name not in want or not _same(got[name], want[name]):
            raise Nonconformity(f"{what} is not what the engine's own loader makes: {name}")


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    flat = [t.detach().contiguous().view(-1).view(torch.uint8) for t in (one, other)]
    return bool(torch.equal(*flat))
