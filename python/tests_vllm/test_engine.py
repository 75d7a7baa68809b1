"""A whole engine on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("engine_update.py")
#: Seconds for an engine to start, on a busy machine too.
SOON = 400


def run(family: str, dtype: str = "bfloat16") -> subprocess.CompletedProcess:
    # In a process of its own: an engine keeps much in globals.
    command = [sys.executable, PROGRAM, family, dtype]
    return subprocess.run(command, capture_output=True, text=True, timeout=SOON)


#: In BF16 the CPU decides whether vLLM packs linear weights (it needs AVX-512), in FP32 any CPU does.
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_engine_generates_what_it_would_from_the_checkpoint(dtype: str) -> None:
    done = run("qwen2", dtype)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["packed"] or dtype == "bfloat16"
    assert said["kind"] == ("ThroughLoader" if said["packed"] else "LiveLayout")
    assert said["other"] != said["loaded"]
    assert said["back"] == said["loaded"]


def test_packed_experts_are_refused() -> None:
    done = run("qwen3_moe")
    assert done.returncode != 0
    assert "experts are packed for CPUs" in done.stderr
