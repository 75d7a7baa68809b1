"""The conformance kit: it passes an engine that is read rightly, and finds what is read wrongly."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")

import weightcast as wc  # noqa: E402
from weightcast.adapters.live.read import read  # noqa: E402
from weightcast.testing import Checkpoint, Nonconformity, conform  # noqa: E402

from .test_adapters import PUBLISHED, Engine  # noqa: E402


class Ranks:
    """Two ranks of the toy engine, under the kit's protocol."""

    ranks = 2

    def build(self, rank):
        engine = Engine(rank, 2)
        for name, parameter in engine.named_parameters():
            if name != "scale":
                parameter.data.fill_(7)
        return engine

    def read(self, rank, model, catalog):
        decisions = {"unused": {}, "unsourced": {"scale": "set by the engine"}}
        return read(dict(model.named_parameters()), model.load_weights, catalog, **decisions)

    def load(self, rank, model, tensors):
        model.load_weights(tensors)

    def state(self, rank, model):
        return dict(model.named_parameters())


CHECKPOINT = Checkpoint({n: torch.zeros(s, dtype=torch.bfloat16) for n, s in PUBLISHED.items()})


@pytest.mark.parametrize("seed", range(3))
def test_a_right_adapter_conforms(seed: int) -> None:
    conform(Ranks(), CHECKPOINT, seed=seed)


class Swapped(Ranks):
    """Reads gate and up the wrong way round."""

    def read(self, rank, model, catalog):
        live = super().read(rank, model, catalog)
        for record in live.records:
            if record.name == "w13":
                names = {"gate": "up", "up": "gate"}
                record.pieces = [
                    dataclasses.replace(p, tensor=p.tensor[:10] + names[p.tensor[10:]])
                    for p in record.pieces
                ]
        return live


class Silent(Ranks):
    """Takes any name for one that may be left over."""

    def read(self, rank, model, catalog):
        anything = {"*": "whatever"}
        return read(
            dict(model.named_parameters()), model.load_weights, catalog,
            unused=anything, unsourced=anything,
        )


class Unfinished(Ranks):
    """Forgets what has to follow an update."""

    def read(self, rank, model, catalog):
        live = super().read(rank, model, catalog)
        live.finish = lambda: None
        return live


class Loading(Ranks):
    """Changes the model when it reads it."""

    def read(self, rank, model, catalog):
        model.down.data.add_(1)
        return super().read(rank, model, catalog)


class Ordered(Ranks):
    """Has another layout for another order of names."""

    def read(self, rank, model, catalog):
        live = super().read(rank, model, catalog)
        if next(iter(catalog)) != next(iter(PUBLISHED)):
            live.records[0].pieces.reverse()
        return live


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Swapped(), "after the first update .* w13"),
        (Silent(), "missing, and nobody says so"),
        (Unfinished(), "after the first update .* (gate|turned)"),
        (Loading(), "reading the layout .* down"),
        (Ordered(), "the layout read in .* differs at qkv"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Ranks) else "",
)
def test_a_wrong_adapter_is_found(engine: Ranks, message: str) -> None:
    with pytest.raises(Nonconformity, match=message):
        conform(engine, CHECKPOINT, seed=1)


def test_tied_names_are_published_twice() -> None:
    class Tied(Ranks):
        def build(self, rank):
            model = super().build(rank)
            load = model._load
            model._load = lambda name, t: load({"head": "embed"}.get(name, name), t)
            return model

    conform(Tied(), Checkpoint(CHECKPOINT.tensors, tied={"head": "embed"}))
    # A name that is published and taken by nobody is no tie.
    with pytest.raises(wc.LayoutMismatch, match="head"):
        conform(Ranks(), Checkpoint(CHECKPOINT.tensors, tied={"head": "embed"}))
