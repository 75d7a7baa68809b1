"""The program: runs all measures, shows each, writes the report."""

import json
import os
import platform
import signal
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .course import Course, WrongBytes
from .figures import ahead, promises
from .picture import draw
from .processes import adopt
from .settings import Settings, parse
from .table import ahead_rows, aligned, missing_rows, promise_rows, row, rows
from .ways import ROOT, WAYS

SCHEMA = "bench-peers/1"
"""The kind of file, and the version of its schema."""
TCP_WAYS = [name for name, each in WAYS.items() if each.tcp]


def machine() -> dict[str, Any]:
    """What it runs on."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpus": os.cpu_count(),
        "processor": model[0].partition(":")[2].strip() if model else "unknown",
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
    }


def versions() -> dict[str, str]:
    """Of the libraries, as they are pinned."""
    found = {}
    for file in sorted(ROOT.glob("requirements-peers*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            name, pinned, number = line.partition("==")
            if pinned:
                found[name] = number
    for name in "torch", "safetensors":
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def run(settings: Settings) -> None:
    """Runs it all."""
    began, on = time.monotonic(), machine()

    def say(measure: dict[str, Any]) -> None:
        what = measure.get("not_run") or measure.get("wrong") or "  ".join(row(measure, course.measures)[2:])
        name = f"{measure['way']}, {measure['case']} to {measure['readers']}"
        print(f"[{time.monotonic() - began:5.0f} s] {name:36} {what}", file=sys.stderr, flush=True)

    course = Course(settings, say)
    try:
        course.run()
    finally:
        came = {
            "weightcast": SCHEMA,
            "machine": on,
            "versions": versions(),
            "took_s": time.monotonic() - began,
            "measures": course.measures,
        }
        settings.json.write_text(json.dumps(came, indent=1) + "\n", encoding="utf-8")
        settings.json.with_suffix(".svg").write_text(draw(came), encoding="utf-8")
    show(came)
    print(
        f"\nall of it in {settings.json}, its picture beside it; each byte was compared after each transfer"
    )


def show(came: dict[str, Any]) -> None:
    """Prints the tables of a report."""
    measures = came["measures"]
    for case in dict.fromkeys(each["case"] for each in measures):
        print(f"\n{case}\n{aligned(rows(measures, case))}")
    if len(missing := missing_rows(measures)) > 1:
        print(f"\n{aligned(missing)}")
    if kept := promises(measures):
        print(f"\n{aligned(promise_rows(kept))}")
    if found := ahead(measures, TCP_WAYS):
        print(f"\nwhere another way is ahead\n{aligned(ahead_rows(found))}")


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    settings = parse(arguments)
    adopt()  # what hosts leave behind
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        run(settings)
    except WrongBytes as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; all processes ended", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
