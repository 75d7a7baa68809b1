"""Plans of engines that do not run, held against what the engines' own classes load, whichever engine it is."""

import json
from collections.abc import Callable

import torch

import weightcast as wc
from weightcast import plans
from weightcast.adapters.catalog import Catalog
from weightcast.adapters.recording.recorder import DTYPES

from .ranks import blank

#: A box: a tensor, first index and length by dimension.
Box = tuple[str, tuple[int, ...], tuple[int, ...]]
Values = dict[str, torch.Tensor]


def trainer(catalog: Catalog, shards: int) -> list[wc.Layout]:
    """FSDP2's rows of each tensor."""
    listed = []
    for shard in range(shards):
        layout = wc.Layout(memory=False)
        for name, entry in catalog.items():
            rows = torch.empty(entry.shape, dtype=DTYPES[entry.dtype], device="meta")
            if entry.shape:
                each = -(-entry.shape[0] // shards)
                rows = rows[shard * each : (shard + 1) * each]
                part = wc.part(name, shape=entry.shape, dim=0, index=shard, of=shards)
            else:
                part = wc.part(name, shape=entry.shape)
            layout.add(rows.contiguous(), [part])
        listed.append(layout)
    return listed


def boxes(slice_text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    cuts = [cut.split(":") for cut in slice_text.strip("[]").split(", ") if cut]
    return tuple(int(a) for a, _ in cuts), tuple(int(b) - int(a) for a, b in cuts)


def moved(routes: list[dict], catalog: Catalog) -> dict[str, torch.Tensor]:
    """Which elements of each tensor arrive; each once."""
    arrived = {name: torch.zeros(entry.shape, dtype=torch.int32) for name, entry in catalog.items()}
    for route in routes:
        start, length = boxes(route["slice"])
        arrived[route["tensor"]][tuple(slice(s, s + n) for s, n in zip(start, length, strict=True))] += 1
    assert all(int(count.max()) <= 1 for count in arrived.values())
    return {name: count.bool() for name, count in arrived.items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def held(layout: wc.Layout) -> set[Box]:
    file = json.loads(layout.describe())
    names = [name for name, _, _ in file["tensors"]]
    return {(names[number], tuple(start), tuple(length)) for number, start, length, _, _ in file["ranks"][0]["holds"]}


def moves_what_is_taken(
    catalog: Catalog, target: list[wc.Layout], load: Callable[[int, Values], Values]
) -> None:
    """Fails unless a plan moves to each rank what its class takes, no more and no less. `load` is what the class on a
    rank makes of a checkpoint."""
    source = trainer(catalog, 3)
    planned = plans.plan(source, target)
    assert planned["coverage"] == "exact"
    checkpoint = blank(catalog)
    values, others = (checkpoint.version(number) for number in (1, 2))
    for rank in range(len(target)):
        routes = plans.explain(source, target, rank=rank)
        assert sum(route["bytes"] for route in routes) == planned["per_target_bytes"][rank]
        arrived, want = moved(routes, catalog), load(rank, values)
        # Elements that do not arrive may be anything.
        mixed = {n: torch.where(arrived[n], v, others[n]) for n, v in values.items()}
        assert same(load(rank, mixed), want)
        # Of every tensor of which something arrives, that matters.
        for n in (n for n, elements in arrived.items() if elements.any()):
            other = values | {n: torch.where(arrived[n], others[n], values[n])}
            assert not same(load(rank, other), want), f"{n} is moved to rank {rank}, which takes nothing of it"
