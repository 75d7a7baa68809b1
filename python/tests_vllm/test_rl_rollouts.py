"""vLLM as the rollouts' engine of the compared loop: it samples from the weights that are trained."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Seconds for an engine to start, on a busy machine too.
SOON = 600


def run(tmp_path: Path, *options: str) -> dict:
    path = tmp_path / "run.json"
    command = [sys.executable, "-m", "weightcast.examples.rl", "--engine", "vllm", "--hidden", "128", "--rollouts", "1"]
    # The CPU's kernels, before vLLM chooses them.
    places = [str(Path(__file__).parent / "live" / "site"), str(Path(__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        [*command, "--trainers", "1", "--json", str(path), "--timeout", "300", *options],
        capture_output=True, text=True, timeout=SOON, env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())["runs"][0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "dtype", "rounding"), [("qwen2", "float32", 1e-4), ("gpt2", "bfloat16", 2e-2)]
)
def test_vllm_samples_from_what_is_trained(tmp_path, model, dtype, rounding) -> None:
    told = run(tmp_path, "--model", model, "--dtype", dtype, "--iterations", "4", "--max-staleness", "0")
    assert [step["staleness"] for step in told["steps"]] == [0] * 4
    assert all(step["drift"] < rounding for step in told["steps"]), told["steps"]
    assert told["samples"] == {"learnt": 4 * 192, "dropped": 0, "foreign": 0}


@pytest.mark.full
def test_it_learns(tmp_path) -> None:
    run(tmp_path, "--algorithm", "ppo", "--iterations", "50", "--min-rise", "0.3")
