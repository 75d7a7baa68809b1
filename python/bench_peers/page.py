"""The page of a report: `python -m bench_peers.page FILE > docs/results/bench-peers.md`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .cases import CASES
from .causes import cause
from .figures import ahead, promises, ran
from .table import ahead_rows, markdown, missing_rows, promise_rows, rows
from .ways import WAYS

MOONCAKE = "mooncake-transfer-engine-non-cuda"
HEAD = """# Beside other libraries on one host

`make bench-peers` installs what weightcast is compared with (`requirements-peers.txt`,
`requirements-peers-ucx.txt`), moves the same tensors in every way in one run, and writes
`target/bench-peers.json` and its picture. `PYTHONPATH=python python -m bench_peers.page
target/bench-peers.json` prints this page. `ARGUMENTS="--only nixl --case tiny --readers 1,2"` and
whatever else `python -m bench_peers --help` names measure less, or more.

**Easily misread:** one host, CPU memory, two cores which all processes share. Nothing here says how fast
NICs or GPUs are; TCP is loopback, whose limit is the processor.
"""
MEASURED = """## What is measured

A sender and its readers are processes. The clock runs from the moment when the sender has a new version
in its tensors until the last reader has all of it in its own, which were allocated and touched before:
what a way packs, puts, publishes, notifies, unpacks and copies is in it. Set-up (connections,
registration, prepared transfers) is apart, and done once. Medians of five transfers after one that does
not count; fewer (`n`) where a way has taken twelve seconds. After each transfer every byte of every
reader is compared with what the version holds; a difference fails the run.

| Column | Meaning |
|---|---|
| of weightcast's | the time, in times of `weightcast`'s to as many readers |
| GB/s | bytes into all readers together, by the time |
| sender free | when the sender may change its tensors again |
| CPU | processor seconds of all processes in one transfer, Ray's own too |
| extra memory | the most that all processes have together (PSS) above what they had before set-up |
| first | the transfer that does not count |

Extra memory has the library itself in it, but not the page cache, nor what the kernel holds for
sockets. It is looked at every 10 ms in the first transfer, which does not count for that reason too.
"""


def page(report: dict[str, Any]) -> str:
    """All of it."""
    measures = report["measures"]
    return "\n".join([HEAD, *figures(report), MEASURED, *ways(measures), versions(report)]).rstrip() + "\n"


def figures(report: dict[str, Any]) -> list[str]:
    """The tables of times; first where weightcast is behind."""
    measures, on = report["measures"], report["machine"]
    said = [
        f"{on['processor']}, {on['cpus']} cores, Linux {on['kernel'].split('-')[0]}; load {on['load']} when "
        f"the run began, which took {report['took_s'] / 60:.0f} minutes.\n\n"
        "![Time of each way](bench-peers.svg)\n"
    ]
    if kept := promises(measures):
        said.append(f"## What is promised\n\n{markdown(promise_rows(kept))}\n")
    said.append(behind(measures))
    for case in dict.fromkeys(each["case"] for each in ran(measures)):
        said.append(f"## {CASES[case].about}\n\n{markdown(rows(measures, case))}\n")
    if len(missing := missing_rows(measures)) > 1:
        said.append(f"## Not run\n\n{markdown(missing)}\n")
    return said


def behind(measures: Sequence[dict[str, Any]]) -> str:
    """Where another way is faster, and why."""
    found = ahead(measures, [name for name, each in WAYS.items() if each.tcp])
    if not found:
        return "## Where weightcast is behind\n\nNowhere in this run.\n"
    table = ahead_rows(found)
    whys = ["cause", *(cause(each) for each in found)]
    told = [[*row, why] for row, why in zip(table, whys, strict=True)]
    return (
        "## Where weightcast is behind\n\n"
        "`weightcast` and `weightcast-shared` beside all ways; `weightcast-tcp` beside those over TCP.\n\n"
        f"{markdown(told)}\n"
    )


def ways(measures: Sequence[dict[str, Any]]) -> list[str]:
    """What was compared, with which settings."""
    measured = {each["way"] for each in measures}
    table = [["way", "over TCP", "what it does, and its settings"]]
    known = [(name, each) for name, each in WAYS.items() if name in measured]
    table += [[f"`{name}`", "yes" if each.tcp else "", each.about] for name, each in known]
    return [f"## Ways\n\n{markdown(table)}\n"]


def versions(report: dict[str, Any]) -> str:
    """Of the libraries."""
    shown = "ray", "nixl-cu12", MOONCAKE, "ucxx-cu12", "libucx-cu12", "torch", "safetensors"
    found = report["versions"]
    return "Versions: " + ", ".join(f"{name} {found[name]}" for name in shown if name in found) + "."


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")
