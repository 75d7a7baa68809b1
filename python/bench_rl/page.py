"""The tables of a report, for a page: `python -m bench_rl.page FILE`."""

import json
import sys
from pathlib import Path
from typing import Any

from .table import HEADINGS_OF_PARTS, markdown, ratio_rows, rows, simulated_rows


def page(report: dict[str, Any]) -> str:
    """All of them."""
    said = [f"{report['machine']}\n"]
    for part, heading in HEADINGS_OF_PARTS.items():
        if some := [each for each in report["measures"] if each["part"] == part]:
            said.append(f"## {heading[0].upper()}{heading[1:]}\n\n{markdown(rows(some))}\n")
    if report["simulated"]:
        said.append(f"## Simulated\n\n{markdown(simulated_rows(report['simulated']))}\n")
    said.append(f"## Ratios\n\n{markdown(ratio_rows(report['ratios']))}")
    return "\n".join(said)


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
