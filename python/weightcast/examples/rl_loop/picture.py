"""What is left of the runs: one JSON file (`demo/1`, see docs/guides/pictures.md), and its picture."""

import json
import subprocess
import sys
from typing import Any

SCHEMA = "demo/1"
"""The kind of file, and the version of its schema."""


def write_runs(path: str, runs: list[dict[str, Any]]) -> None:
    """Writes all runs so far."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"weightcast": SCHEMA, "runs": runs}, file, separators=(",", ":"))
        file.write("\n")


def draw(path: str) -> bool:
    """Draws the picture beside the JSON, and says where it lies. False if that failed."""
    sys.stdout.flush()
    return subprocess.call([sys.executable, "-m", "weightcast", "plot", path]) == 0
