"""The program: runs all measures, shows each, writes the report."""

import json
import os
import platform
import signal
import sys
import time
from typing import Any

from .course import Course
from .figures import ratios
from .fleet import BenchFailed
from .hosts import NoLinks
from .settings import BenchSettings, parse
from .table import aligned, row, rows
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
        "measures": course.measures,
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
        with open(settings.json, "w", encoding="utf-8") as file:
            json.dump(report(settings, course), file, indent=1)
            file.write("\n")
    print(aligned(rows(course.measures)))
    print(f"\n{settings.json}; all bytes of all rollouts were compared after each update")


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    settings = parse(arguments)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as Ctrl-C does
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
