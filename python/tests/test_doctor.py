"""The doctor of Python: the checks of the command line, as records."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON, token_file

TOKEN = "0123456789abcdef0123456789abcdef"


def by_id(checks: list[wc.Check]) -> dict[str, wc.Check]:
    """The first check of each id."""
    found: dict[str, wc.Check] = {}
    for check in checks:
        found.setdefault(check.id, check)
    return found


def test_a_job_that_is_well(server: wc.Server) -> None:
    checks = wc.doctor(server.address)
    found = by_id(checks)
    assert all(checks), [check for check in checks if not check]
    # The second process is this Python.
    assert found["way.tcp"].verdict == "ok" and "GB/s" in found["way.tcp"].found
    assert found["way.shared-memory"].verdict == "ok" and "empty_like" in found["way.shared-memory"].found
    assert found["server.reach"].of == server.address
    assert found["server.version"].verdict == "ok" and wc.__version__ in found["server.version"].found
    assert found["token.accepted"].verdict == "ok"
    assert found["way.rdma"] == wc.Check("way.rdma", None, "not applicable", found["way.rdma"].found, None)
    assert "choice.source" not in found


def test_a_token_that_others_can_read_is_a_problem(server: wc.Server, tmp_path: Path) -> None:
    file = token_file(tmp_path / "token", TOKEN)
    file.chmod(0o604)
    check = by_id(wc.doctor([server.address], token_file=file))["token"]
    assert not check and check.verdict == "problem"
    assert check.advice is not None and "chmod" in check.advice
    assert TOKEN not in repr(check)


def test_what_would_be_chosen(server: wc.Server) -> None:
    source, reader = np.ones(64, np.uint8), np.zeros(64, np.uint8)
    opened = [
        wc.open("policy", wc.Replica("trainer", shard=0, num_shards=1), role="trainer", server=server.address),
        wc.open("policy", wc.Replica("rollout", shard=0, num_shards=1), server=server.address),
    ]
    with opened[0] as trainer, opened[1] as rollout:
        for handle, memory in ((trainer, source), (rollout, reader)):
            layout = wc.Layout()
            layout.add(memory, [wc.part("w", shape=[64])])
            handle.register(layout, deadline=SOON)
        trainer.publish(1, deadline=SOON)
        found = by_id(wc.doctor(server.address, source="trainer", reader="rollout", model="policy"))
    assert "from trainer" in found["choice.source"].found, found["choice.source"]
    assert found["choice.layouts"].verdict == "ok"
    assert found["choice.way"].verdict == "ok", found["choice.way"]


def test_half_a_pair_is_no_pair() -> None:
    with pytest.raises(ValueError, match="give both"):
        wc.doctor(source="trainer")
    with pytest.raises(ValueError, match="give both"):
        wc.doctor(reader="rollout")


def test_the_command_of_the_package_moves_bytes_too(server: wc.Server) -> None:
    command = [sys.executable, "-m", "weightcast", "doctor", "--json", "--server", server.address]
    environment = {name: of for name, of in os.environ.items() if not name.startswith("WEIGHTCAST_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["way.tcp"]["verdict"] == "ok", checks["way.tcp"]
