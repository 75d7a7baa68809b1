"""What `weightcast layout` says by rule, in a form that compares with what an engine does."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from weightcast._core import command_line
from weightcast.adapters.catalog import Catalog, Entry
from weightcast.adapters.live import LiveLayout

#: A parameter: shape, dtype, and its pieces as boxes.
Laid = tuple[tuple[int, ...], str, tuple]


class Refused(Exception):
    """There is no layout by rule."""


class Rules:
    """The rules for one config."""

    def __init__(self, config: dict[str, Any], directory: Path) -> None:
        self._path = directory / "config.json"
        self._path.write_text(json.dumps(config))

    def records(self, spec: str, rank: int = 0) -> list[dict[str, Any]]:
        """The records of a rank, with families of layers written out."""
        command = ["weightcast", "layout", "--config", str(self._path)]
        status, out, err = _said([*command, "--spec", spec, "--rank", str(rank), "--json"])
        if status != 0:
            raise Refused(err)
        return self.expanded(json.loads(out)["params"])

    def refuse(self, spec: str, rank: int = 0) -> bool:
        """Whether there is no layout, or a warning that the engine refuses it."""
        command = ["weightcast", "layout", "--config", str(self._path)]
        status, _, err = _said([*command, "--spec", spec, "--rank", str(rank), "--json"])
        return status != 0 or " refuses " in err

    def expanded(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Records of the data set, one for each layer."""
        return [each for record in records for each in _layers(record)]

    def catalog(self, *, draft: bool = False) -> Catalog:
        """What a checkpoint of this config holds."""
        listed = self.records(f"ddp:dp=1,mtp={int(draft)}")
        return {r["name"]: Entry(tuple(r["shape"]), r["dtype"]) for r in listed}


def _said(command: list[str]) -> tuple[int, str, str]:
    """Status and output of the command line, run in this process: a process for each takes longer
    than all else that a test does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = [os.dup(1), os.dup(2)]
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            status = command_line(command, [])  # no command here starts another process
        finally:
            for at, file in enumerate(kept, 1):
                os.dup2(file, at)
                os.close(file)
        out.seek(0)
        err.seek(0)
        return status, out.read().decode(), err.read().decode()


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
