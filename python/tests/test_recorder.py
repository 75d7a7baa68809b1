"""What a worker did last, as a file."""

import subprocess
import sys
from pathlib import Path

import pytest

import weightcast as wc


def replayed(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "weightcast", "replay", str(path)], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_a_handle_is_recorded_when_it_is_asked_and_when_a_call_fails(server: wc.Server, tmp_path: Path) -> None:
    records = tmp_path / "records"
    with wc.open("policy", wc.Replica("rollout-0"), server=server.address, record_dir=records) as handle:
        asked = handle.record()
        assert asked.parent == records and asked.stat().st_mode & 0o777 == 0o600
        assert "rollout-0/0" in replayed(asked)
        with pytest.raises(wc.Misuse):
            handle.replicate("latest", deadline=1.0)  # without memory
    (failed,) = records.glob("session-failed-*.recording")
    assert failed != asked
    story = replayed(failed)
    assert story.startswith("recording of a session, written as a call failed: ")
    assert "all outputs as recorded" in story
