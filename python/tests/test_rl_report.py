"""What the demo's children report becomes JSON of a fixed schema, and a picture with its numbers."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")

from weightcast.examples.rl_loop.picture import draw, write_runs
from weightcast.examples.rl_loop.report import Report
from weightcast.examples.rl_loop.settings import Settings

TITLE = "{http://www.w3.org/2000/svg}title"
BEGAN = 100.0


def report_of(no_sync: bool) -> Report:
    """A report of two steps and one rollout, as its children would have told it."""
    report = Report(Settings(steps=2, rollouts="1", no_sync=no_sync), began=BEGAN)
    for step in range(2):
        at = BEGAN + 1 + step
        if step == 0 or not no_sync:
            moved = {"bytes": 10, "verified": 10, "seconds": 0.25}
            stamps = {"asked": at, "committed": at + 0.375}
            report.on_report("rollout-0/0", {"event": "update", "version": step} | moved | stamps)
        learnt = {"step": step, "reward": 0.25 * step, "staleness": 0.0, "drift": 0.0}
        stamps = {"published": at - 0.5, "unpublished": at + 0.4375}
        report.on_report("trainer/0", {"event": "step"} | learnt | stamps)
    return report


def test_the_schema(tmp_path):
    path = tmp_path / "run.json"
    write_runs(str(path), [report_of(no_sync=False).as_json()])
    written = json.loads(path.read_text())
    assert set(written) == {"weightcast", "runs"} and written["weightcast"] == "demo/1"
    (run,) = written["runs"]
    assert run["seconds"] == 2.4375
    assert run["steps"][1] == {
        "step": 1, "reward": 0.25, "staleness": 0.0, "drift": 0.0, "published_s": 1.5, "unpublished_s": 2.4375
    }
    assert run["updates"] == [
        {"worker": "rollout-0/0", "version": 0, "asked_s": 1.0, "committed_s": 1.375},
        {"worker": "rollout-0/0", "version": 1, "asked_s": 2.0, "committed_s": 2.375},
    ]
    assert run["total"] == {"bytes": 20, "verified": 20, "seconds": 0.5, "shards": 2}
    assert run["reward"] == {"first": 0.125, "last": 0.125}
    assert [version["version"] for version in run["versions"]] == [0, 1]
    assert run["settings"]["trainers"] == 2 and "json" not in run["settings"], "no path of this machine"


def test_its_picture_has_its_numbers(tmp_path, capfd):
    path = tmp_path / "run.json"
    write_runs(str(path), [report_of(no_sync=which).as_json() for which in (False, True)])
    capfd.readouterr()
    assert draw(str(path))
    assert capfd.readouterr().out == f"picture: {tmp_path / 'run.svg'}\n"
    tips = [tip.text for tip in ElementTree.parse(tmp_path / "run.svg").iter(TITLE)]
    assert "with sync, step 1: 0.250 fraction of right tokens" in tips
    assert "without sync, step 1: 0.250 fraction of right tokens" in tips
    assert "rollout-0, version 1: 375 milliseconds" in tips
    assert "rollout-0/0: version 0 from 1.375 to 2.000 s" in tips


def test_a_picture_that_cannot_be_drawn_is_told(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"weightcast": "demo/99"}')
    assert not draw(str(path))
    command = [sys.executable, "-m", "weightcast", "plot", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "demo/99" in ran.stderr
