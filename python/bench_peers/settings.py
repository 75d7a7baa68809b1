"""The options of a run."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from .cases import CASES
from .ways import ROOT, WAYS, UnknownWay, entry

PLAN = {"qwen2.5-0.5b": (1, 8), "few": (1,), "tiny": (1,)}
"""Numbers of readers of each case, unless options say otherwise: what the page shows."""


@dataclass(frozen=True)
class Settings:
    """What a run is to do."""

    ways: list[str]
    #: Case and readers.
    measures: list[tuple[str, int]]
    repeats: int
    enough: float
    timeout: float
    disk: str
    json: Path


def parse(arguments: list[str] | None = None) -> Settings:
    """The settings from the command line; ends the program with a message if they are wrong."""
    plan = ", ".join(f"{case} to {' '.join(map(str, readers))}" for case, readers in PLAN.items())
    cases = "; ".join(f"{name}: {case.about}" for name, case in CASES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench_peers",
        description="Moves the same tensors on one host by weightcast and by others, and compares them.",
        epilog=f"Ways: {', '.join(WAYS)}. Cases: {cases}.",
    )
    add = parser.add_argument
    add(
        "--only",
        action="append",
        default=[],
        metavar="WAY",
        help="this way, or MODULE:CLASS; may be repeated",
    )
    add(
        "--case",
        action="append",
        default=[],
        choices=CASES,
        help=f"may be repeated (default: {plan} readers)",
    )
    add("--readers", type=numbers, help="numbers of readers, by commas")
    add("--repeats", type=int, default=5, help="transfers of each measure, beside one that does not count")
    add("--enough", type=float, default=12.0, help="seconds of transfers after which there is no further one")
    add("--timeout", type=float, default=60.0, help="seconds that any single wait may take")
    add("--disk", default=str(ROOT / "target"), help="a folder on a disk, for checkpoints (default: target)")
    add(
        "--json", type=Path, default=Path("bench-peers.json"), help="the report; its picture, .svg, beside it"
    )
    given = parser.parse_args(arguments)
    try:
        for way in given.only:
            entry(way)
    except UnknownWay as error:
        parser.error(str(error))
    if given.repeats < 1 or given.enough <= 0 or given.timeout <= 0:
        parser.error("--repeats, --enough and --timeout must be above 0")
    if given.json.suffix != ".json" or not os.access(given.json.parent, os.W_OK):
        parser.error(f"--json {given.json} must end in .json, in a folder that can be written")
    if not os.access(given.disk, os.W_OK):
        parser.error(f"--disk {given.disk} is no folder that can be written")
    measures = [
        (case, readers) for case in given.case or PLAN for readers in given.readers or PLAN.get(case, (1,))
    ]
    return Settings(
        ways=given.only or list(WAYS),
        measures=measures,
        repeats=given.repeats,
        enough=given.enough,
        timeout=given.timeout,
        disk=given.disk,
        json=given.json,
    )


def numbers(text: str) -> list[int]:
    """Numbers by commas."""
    found = [int(each) for each in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found
