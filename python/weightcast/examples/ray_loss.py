"""What the loss of a node costs a job on Ray: `ray_rl` on three nodes of this machine without a loss, where a
rollout's node is lost, and where the server's is, one after the other from the same seeds.

    python -m weightcast.examples.ray_loss --json ray-loss.json

writes all steps as JSON, and a picture beside it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .ray_record import write

CASES = (None, "rollout", "server")
NODES = 3


def run(lost: str | None, steps: int) -> dict[str, Any]:
    """The record of one run, in a process and a cluster of its own."""
    print(f"--- {NODES} nodes, lost: {lost or 'none'}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        settings = ["--nodes", str(NODES), "--steps", str(steps), "--json", str(path)]
        settings += ["--lose", lost] if lost else []
        subprocess.run([sys.executable, "-m", "weightcast.examples.ray_rl", *settings], check=True)
        (found,) = json.loads(path.read_text())["runs"]
    return dict(found)


def row(found: dict[str, Any]) -> str:
    """What a run comes to, in one line of a table."""
    sums = found["sums"]
    after = sums.get("after_loss_s", {})
    seconds = [sums["median_step_s"], sums["longest_step_s"]]
    seconds += [after.get(name) for name in ("next_step", "server_moved", "rollouts_follow")]
    return " | ".join(
        [
            found["lost"] or "none",
            f"{sums['reward']['first']:.2f} to {sums['reward']['last']:.2f}",
            *(str(sums[name]) for name in ("in_vain", "without_all", "stalest", "furthest")),
            *("-" if value is None else f"{value:.2f} s" for value in seconds),
        ]
    )


HEADING = (
    "lost | reward | steps in vain | steps without all rollouts | stalest batch | rollout furthest behind | "
    "median step | longest step | next step | server moved | rollouts follow"
)


def main() -> int:
    """Runs all cases, writes and draws them. The exit status of the drawing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40, help="of each run; the node is lost half-way")
    parser.add_argument("--json", default="weightcast-ray-loss.json")
    given = parser.parse_args()
    runs = [run(lost, given.steps) for lost in CASES]
    write(given.json, runs)
    print(HEADING, *map(row, runs), sep="\n", flush=True)
    return subprocess.call([sys.executable, "-m", "weightcast", "plot", given.json])


if __name__ == "__main__":
    sys.exit(main())
