"""What `weightcast layout` says by rule, in a form that compares with what an engine does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from weightcast.adapters.catalog import Catalog, Entry
from weightcast.adapters.live import LiveLayout

#: A parameter: shape, dtype, and its pieces as boxes.
Laid = tuple[tuple[int, ...], str, tuple]


class Rules:
    """The rules for one config."""

    def __init__(self, config: dict[str, Any], directory: Path) -> None:
        self._path = directory / "config.json"
        self._path.write_text(json.dumps(config))

    def records(self, spec: str, rank: int = 0) -> list[dict[str, Any]]:
        """The records of a rank, with families of layers written out."""
        command = [sys.executable, "-m", "weightcast", "layout", "--config", str(self._path)]
        command += ["--spec", spec, "--rank", str(rank), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return self.expanded(json.loads(done.stdout)["params"])

    def expanded(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Records of the data set, one for each layer."""
        return [each for record in records for each in _layers(record)]

    def catalog(self, *, draft: bool = False) -> Catalog:
        """What a checkpoint of this config holds."""
        listed = self.records(f"ddp:dp=1,mtp={int(draft)}")
        return {r["name"]: Entry(tuple(r["shape"]), r["dtype"]) for r in listed}


def _layers(record: dict[str, Any]) -> list[dict[str, Any]]:
    if "L" not in record:
        return [record]
    first, last = record["L"]
    return [
        json.loads(json.dumps(record).replace("{L}", str(layer)))
        for layer in range(first, last + 1)
    ]


def laid(records: list[dict[str, Any]], catalog: Catalog) -> dict[str, Laid]:
    """Records by name, every piece as a box: a whole tensor is the same along any dimension.

    vLLM says `experts.routed_experts.` since 0.32; the data set has the older name.
    """
    return {
        r["name"].replace(".experts.routed_experts.", ".experts."): (
            tuple(r["shape"]),
            r["dtype"],
            tuple(sorted(_box(piece, catalog) for piece in r["pieces"])),
        )
        for r in records
    }


def _box(piece: list, catalog: Catalog) -> tuple:
    name, dim, start, length, target_dim, target_start, index = piece
    shape = catalog[name].shape
    first, lengths, target = [0] * len(shape), list(shape), [0] * len(shape)
    if shape:
        first[dim], lengths[dim], target[target_dim] = start, length, target_start
    # None does not compare with numbers.
    return name, tuple(first), tuple(lengths), tuple(target), -1 if index is None else index


def agree(live: LiveLayout, rules: Rules, catalog: Catalog, spec: str, rank: int) -> None:
    """Fails unless a live layout is what the rules say, and says itself where a copy converts."""
    by_rule = laid(rules.records(spec, rank), catalog)
    assert laid([record.as_json() for record in live.records], catalog) == by_rule, (spec, rank)
    # Where the engine's type is another one, the copy converts.
    casts = {conversion.parameter for conversion in live.conversions}
    other = {r.name for r in live.records if any(catalog[p.tensor].dtype != r.dtype for p in r.pieces)}
    assert casts == other
