"""The examples of the worker patterns run and hold what they assert."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["colocated_worker", "standalone_rollout", "cpu_copy_trainer"])
def test_example_runs(name):
    command = [sys.executable, "-m", f"weightcast.examples.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
