"""The program: runs all measures, shows each, writes the report."""

import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

from .course import Course
from .crew import BenchFailed
from .figures import ratios
from .hosts import NoLinks
from .picture import draw
from .settings import BenchSettings, parse
from .table import HEADINGS_OF_PARTS, aligned, ratio_rows, row, rows, simulated_rows
from .ways import UnknownWay, find

SCHEMA = "bench-rl/1"
"""The kind of file, and the version of its schema."""
BASE = "weightcast-pull"
"""What the others are compared with."""


def machine() -> dict[str, Any]:
    """What it runs on."""
    import torch

    return {"cpus": os.cpu_count(), "kernel": platform.release(), "torch": torch.__version__.split("+")[0]}


def report(settings: BenchSettings, course: Course) -> dict[str, Any]:
    """All that came of a run."""
    return {
        "weightcast": SCHEMA,
        "machine": machine(),
        "settings": vars(settings),
        "not_run": course.missing,
        "failed": course.failed,
        "measures": course.measures,
        "simulated": course.simulated,
        "ratios": ratios(course.measures, BASE),
    }


def run(settings: BenchSettings) -> None:
    """Runs it all."""
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {what}", file=sys.stderr, flush=True)

    course = Course(settings, say, lambda measure: say("  " + "  ".join(row(measure)[3:])))
    try:
        course.run()
    finally:
        came = report(settings, course)
        Path(settings.json).write_text(json.dumps(came, indent=1) + "\n", encoding="utf-8")
        Path(settings.json).with_suffix(".svg").write_text(draw(came), encoding="utf-8")
        show(came)
        print(f"\nall of it in {settings.json}, its picture beside it; bytes are compared after each update")


def show(came: dict[str, Any]) -> None:
    """Prints the tables of a report."""
    for part, heading in HEADINGS_OF_PARTS.items():
        if some := [each for each in came["measures"] if each["part"] == part]:
            print(f"\n{heading}\n{aligned(rows(some))}")
    if came["simulated"]:
        print(f"\nweightcast-pull, simulated\n{aligned(simulated_rows(came['simulated']))}")
    if came["ratios"]:
        print(f"\nin times of {BASE}\n{aligned(ratio_rows(came['ratios']))}")
    for heading in ("not run", "failed"):
        for way, why in came[heading.replace(" ", "_")].items():
            print(f"\n{heading}: {way}: {why}")


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    settings = parse(arguments)
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as Ctrl-C does
    try:
        for way in settings.way_list:
            find(way)
        run(settings)
    except (BenchFailed, NoLinks, UnknownWay) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; all processes ended", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
