"""A whole engine on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("engine_update.py")
#: Seconds for an engine to start, on a busy machine too.
SOON = 400


def run(family: str) -> subprocess.CompletedProcess:
    # In a process of its own: an engine keeps much in globals.
    command = [sys.executable, PROGRAM, family]
    return subprocess.run(command, capture_output=True, text=True, timeout=SOON)


def test_an_engine_generates_what_it_would_from_the_checkpoint() -> None:
    done = run("qwen2")
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["kind"] == "ThroughLoader", "vLLM packs linear weights on CPUs"
    assert said["other"] != said["loaded"]
    assert said["back"] == said["loaded"]


def test_packed_experts_are_refused() -> None:
    done = run("qwen3_moe")
    assert done.returncode != 0
    assert "experts are packed for CPUs" in done.stderr
