"""Megatron-core as the trainer of the compared loop: it starts with the same weights as the others, rollouts
have the weights that it trains, and it learns."""

import json
import subprocess
import sys

import pytest


def run(tmp_path, *options: str) -> dict:
    path = tmp_path / "run.json"
    command = [sys.executable, "-m", "weightcast.examples.rl", "--trainer", "megatron", "--rollouts", "1"]
    done = subprocess.run(
        [*command, "--json", str(path), "--timeout", "100", *options], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())["runs"][0]


@pytest.mark.parametrize(
    ("options", "rounding"),
    [
        (["--trainer-tp", "2", "--in-place", "--rollout-tp", "2"], 1e-5),
        (["--algorithm", "ppo", "--train-dtype", "bfloat16", "--dtype", "bfloat16"], 2e-2),
    ],
    ids=["tensor-parallel", "data-parallel-bf16"],
)
def test_rollouts_have_what_megatron_trains(tmp_path, options, rounding) -> None:
    told = run(tmp_path, "--iterations", "5", "--max-staleness", "0", *options)
    assert [step["staleness"] for step in told["steps"]] == [0] * 5
    assert all(step["drift"] < rounding for step in told["steps"]), told["steps"]
    assert len(set(told["digests"].values())) == 5
    assert told["total"]["verified"] == told["total"]["bytes"] > 0


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_it_learns(tmp_path, algorithm) -> None:
    steps = {"grpo": "100", "ppo": "50"}[algorithm]
    run(tmp_path, "--algorithm", algorithm, "--trainer-tp", "2", "--iterations", steps, "--min-rise", "0.3")
