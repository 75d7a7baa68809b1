"""Numbers of trainers that no machine here carries: the real server and sessions over simulated links
(`weightcast sim --scenario`), of the rate of the emulated ones."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .figures import GB
from .hosts import GOODPUT

UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
BEGIN_S = 20
"""When the update begins, in simulated seconds."""


class BadRate(ValueError):
    """Not a rate as `tc` writes it."""


def gb_per_s(rate: str) -> float:
    """A rate as `tc` writes it, in GB/s."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(k|m|g)?bit", rate)
    if not found:
        raise BadRate(f"--rate {rate!r} is not a number with one of {', '.join(UNITS)}")
    return float(found[1]) * UNITS[f"{found[2] or ''}bit"] / 8 / GB


def scenario(senders: list[int], rollouts: int, model_bytes: int, rate: str) -> dict[str, Any]:
    """A scenario with a case for each number of trainers, each of whom has the whole model and a host."""
    trainers, ends = "trainers", "rollouts"
    link = gb_per_s(rate)
    return {
        "figure": "trainers to rollouts",
        "about": "All trainers publish at once, and all rollouts ask for it at once.",
        "assumptions": [],
        "setting": {
            "shards": 1,
            "shard_gb": model_bytes / GB,
            "datacentres": {
                "main": {"gpus_per_host": 1, "nics_per_host": 1, "nic_gb_s": link, "outer_nic_gb_s": link}
            },
            "goodput": {"inner": GOODPUT, "outer": GOODPUT, "source": "of TCP over an emulated link"},
            "groups": {
                ends: {"role": "rollout", "replicas": rollouts, "datacentre": "main"},
                trainers: {"role": "trainer", "replicas": senders[0], "datacentre": "main"},
            },
            "script": [
                {"at_s": 1, "do": "publish", "group": trainers, "version": 1, "warm_up": True},
                {"at_s": 2, "do": "replicate", "group": ends, "warm_up": True},
                {"at_s": BEGIN_S, "do": "publish", "group": trainers, "version": 2},
                {"at_s": BEGIN_S, "do": "update", "group": ends, "version": 2, "every_s": 0.001},
            ],
        },
        "cases": [
            {
                "name": str(count),
                "change": {"groups": {trainers: {"replicas": count}}},
                "reported": [],
                "formulas": [],
            }
            for count in senders
        ],
    }


def outcomes(played: dict[str, Any], rollouts: int, model_bytes: int) -> list[dict[str, Any]]:
    """What the simulator's report comes to, in the words of a measure."""
    found = []
    for case in played["cases"]:
        stalls = [each for each in case["outcome"]["stalls"] if each["version"] == 2]
        if len(stalls) != rollouts:
            raise ValueError(f"{case['case']} trainers: {len(stalls)} of {rollouts} rollouts were updated")
        seconds = max(each["ended_s"] for each in stalls) - BEGIN_S
        found.append(
            {
                "trainers": int(case["case"]),
                "rollout_stall_s": sum(each["stall_s"] for each in stalls),
                "seconds": seconds,
                "gb_per_s": rollouts * model_bytes / seconds / GB,
            }
        )
    return found


def forecast(senders: list[int], rollouts: int, model_bytes: int, rate: str) -> list[dict[str, Any]]:
    """Simulates each number of trainers."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scenario.json")
        file.write_text(json.dumps(scenario(senders, rollouts, model_bytes, rate)))
        command = [sys.executable, "-m", "weightcast", "sim", "--scenario", str(file), "--json"]
        played = subprocess.run(command, capture_output=True, text=True, check=True)
    return outcomes(json.loads(played.stdout), rollouts, model_bytes)
