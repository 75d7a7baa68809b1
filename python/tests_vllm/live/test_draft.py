"""Live engines that guess tokens with a draft: after each update, and after a start without a checkpoint, both
models are those of an engine that has loaded the checkpoints itself, and they guess and say the same."""

import json
import subprocess
import sys

import pytest

from .server import HERE, SOON

#: In `make test-vllm` the heads of a model's own checkpoint stand for all.
WAYS = ["mimo", *(pytest.param(way, marks=pytest.mark.full) for way in ("draft_model", "eagle", "eagle3"))]
#: What has to be equal.
PAIRS = {"updated 2": "fresh 2", "updated 3": "fresh 3", "updated 1": "loaded", "started 2": "fresh 2"}


@pytest.mark.parametrize("way", WAYS)
def test_a_draft_follows_with_its_model(way: str) -> None:
    command = [sys.executable, HERE / "draft_program.py", way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SOON)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    for ours, fresh in PAIRS.items():
        assert said[ours] == said[fresh], ours
    for what in ("tokens", "guessed", "parameters"):
        assert len({str(each[what]) for each in said.values()}) == 3, what
