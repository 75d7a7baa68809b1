"""Plans between whole sides, before anything moves: who sends what to whom, the bytes of each rank, the least
time.

A side is all ranks of a trainer or of engines: their layouts, each a `weightcast.Layout` or what
`Layout.describe()` says of it in another process; a file of them that `write` has written; or a rule, such as
`"fsdp2:dp=8"` with `config`, the model's `config.json` (`weightcast layout --help`).

    plans.write("trainer.json", everyone)        # what describe() said on each rank
    planned = plans.plan("trainer.json", vllm.layouts("Qwen/Qwen3-8B", tp=2))
    planned["coverage"], planned["per_target_bytes"], planned["lower_bound_s"]
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import _core
from .layout import Layout

#: All ranks of a trainer or of an engine: their layouts, a file of these, or a rule.
Side = str | os.PathLike[str] | Iterable[Layout | str]


def text_of(layouts: Iterable[Layout | str]) -> str:
    """The text of a file of layouts: one of each rank, in their order, or what `Layout.describe` said of
    it."""
    return _core.join_layouts([one if isinstance(one, str) else one.describe() for one in layouts])


def write(path: str | os.PathLike[str], layouts: Iterable[Layout | str]) -> None:
    """Writes the layouts of all ranks, in their order, to a file for `plan`, `weightcast plan` and
    `weightcast layout`; its name ends in `.json`."""
    if Path(path).suffix != ".json":
        raise _core.Misuse(f"{path}: commands know a file of layouts by .json at the end of its name")
    Path(path).write_text(text_of(layouts))


def plan(
    source: Side,
    target: Side,
    *,
    config: str | os.PathLike[str] | None = None,
    replicas: int = 1,
    gpus_per_host: int = 8,
    machine: str = "host-tcp",
    nic_gbps: float | None = None,
    budget: int = 1 << 30,
) -> dict[str, Any]:
    """The plan of a version from a trainer to `replicas` engines: what `weightcast plan --json` prints, whose
    options these are. `coverage` is `exact`, or says what is wrong."""
    sides = _given(source), _given(target)
    planned: dict[str, Any] = json.loads(
        _core.plan(*sides, config, replicas, gpus_per_host, machine, nic_gbps, budget)
    )
    return planned


def explain(
    source: Side,
    target: Side,
    *,
    config: str | os.PathLike[str] | None = None,
    tensor: str | None = None,
    rank: int | None = None,
) -> list[dict[str, Any]]:
    """Where the bytes of a tensor, or of all that a target rank gets, come from and go to: what `weightcast
    plan explain --json` prints."""
    sides = _given(source), _given(target)
    routes: list[dict[str, Any]] = json.loads(_core.explain(*sides, config, tensor, rank))
    return routes


def _given(side: Side) -> str:
    return os.fspath(side) if isinstance(side, str | os.PathLike) else text_of(side)
