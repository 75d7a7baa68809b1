"""The demo end to end, as a user runs it: processes, weights through weightcast, samples back."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .programs.terminal import Terminal

pytest.importorskip("torch")
pytest.importorskip("transformers")

SVG = "{http://www.w3.org/2000/svg}"
COMMAND = [sys.executable, "-m", "weightcast.examples.rl_loop", "--timeout", "60"]


def attend_to_ctrl_c():
    """Undoes what a shell does to a job in its background: it has it ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start():
    """Starts demos, and leaves none behind."""
    demos = []

    def start(*options):
        demo = subprocess.Popen(
            [*COMMAND, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=attend_to_ctrl_c,
        )
        demos.append(demo)
        return demo

    yield start
    for demo in demos:
        if demo.poll() is None:
            demo.kill()
            demo.communicate()


def until_step(demo):
    """Reads its output until the first step is through: everyone is at work."""
    for line in demo.stdout:
        if line.startswith("step"):
            return
    pytest.fail(demo.stderr.read())


def runs_of(path):
    """The runs in a demo's JSON, which says what it is."""
    written = json.loads(path.read_text())
    assert written["weightcast"] == "demo/1"
    return written["runs"]


def children(demo):
    """The process ids of its children, trainers first."""
    path = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def alive(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.full
def test_uneven_trainers_feed_a_rollout_with_more_ranks_than_kv_heads(start, tmp_path):
    path = tmp_path / "report.json"
    options = "--trainers", "3", "--rollouts", "4", "--steps", "3", "--min-rise", "-1"
    demo = start(*options, "--json", str(path))
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, out + err
    assert "0 unverified bytes" in out
    (report,) = runs_of(path)
    assert [step["step"] for step in report["steps"]] == [0, 1, 2]
    assert all(0 <= step["staleness"] <= 1 for step in report["steps"])
    assert report["steps"][0]["drift"] < 1e-5, "rollout and trainer disagree on the first version"
    assert report["versions"][0]["shards"] == 4
    for version in report["versions"]:
        assert version["verified"] == version["bytes"] > 0
    assert set(report["allocation"]) == {f"rollout-0/{rank}" for rank in range(4)}
    for step in report["steps"]:
        assert 0 < step["published_s"] < step["unpublished_s"] <= report["seconds"]
    assert len(report["updates"]) == sum(version["shards"] for version in report["versions"])
    for update in report["updates"]:
        assert 0 < update["asked_s"] < update["committed_s"] <= report["seconds"]


def test_the_control_keeps_the_first_version(start, tmp_path):
    path = tmp_path / "report.json"
    demo = start("--no-sync", "--steps", "4", "--rollouts", "1", "--json", str(path))
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, out + err
    (report,) = runs_of(path)
    assert [version["version"] for version in report["versions"]] == [0]
    assert [step["staleness"] for step in report["steps"]] == [0, 1, 2, 3]


def test_a_run_and_its_control_end_with_one_picture(start, tmp_path):
    path, few = tmp_path / "both.json", ("--steps", "3", "--rollouts", "1", "--min-rise", "-1")
    demo = start("--control", *few, "--json", str(path))
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, out + err
    picture = path.with_suffix(".svg")
    assert out.endswith(f"picture: {picture}\n")
    run, control = runs_of(path)
    assert (run["settings"]["no_sync"], control["settings"]["no_sync"]) == (False, True)
    written = [text.text for text in ElementTree.parse(picture).iter(f"{SVG}text")]
    for text in "Reward", "with sync", "without sync", "trainers", "rollout-0/0":
        assert text in written, written


def test_the_loop_is_watched_in_a_terminal(start):
    demo = start("--steps", "100000")
    hint = next(line for line in demo.stdout if "weightcast top" in line)
    asked = "--server", hint.split()[-1]
    until_step(demo)
    top = Terminal("top", *asked, "--interval", "0.2")
    watch = Terminal("status", *asked, "--watch", "0.2")

    def held(lines):
        shown = [re.match(r"  rollout-1  rollout  sealed +1/1 +(\d+)", line) for line in lines]
        return max((int(row[1]) for row in shown if row), default=-1)

    def nothing_wrong(lines):
        begins = [at for at, line in enumerate(lines) if line.startswith("-- errors")]
        return any(lines[at + 1 : at + 2] == ["  none"] for at in begins)

    try:
        first = held(top.wait_for(lambda lines: held(lines) >= 0))
        # A screen that is read while it is drawn has rows of two moments.
        lines = top.wait_for(lambda lines: held(lines) > first + 2 and nothing_wrong(lines))
        text = "\n".join(lines)
        assert lines[0].startswith("weightcast top  http://127.0.0.1:") and "5 sessions" in lines[0]
        assert re.match(r"model  policy   epoch \d+  revision ", lines[1]), text
        for row in r"^-- 3 replicas, \d of them reading -", "^  rollout-0  rollout  .* 2/2 ", "^  trainer    trainer  .* 2/2 ":
            assert re.search(row, text, re.MULTILINE), text
        table = "\n".join(watch.wait_for(lambda lines: any("since the start" in line for line in lines)))
        for row in r"^5 sessions, 5 manifests ", "^  replica rollout-0 .* 2 of 2 shards", "^  replica trainer .* 2 of 2 shards":
            assert re.search(row, table, re.MULTILINE), table
    finally:
        top.close()
        watch.close()


@pytest.mark.parametrize("victim", [0, 2], ids=["trainer", "rollout"])
def test_a_killed_child_ends_the_demo_with_its_name(start, victim):
    demo = start("--steps", "100000")
    until_step(demo)
    pids = children(demo)
    assert len(pids) == 5
    os.kill(pids[victim], signal.SIGKILL)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert ["trainer rank 0", "", "rollout-0 rank 0"][victim] + " was killed by SIGKILL" in err
    assert not alive(pids)


def test_ctrl_c_ends_everything(start):
    demo = start("--steps", "100000")
    until_step(demo)
    pids = children(demo)
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert err.strip() == "interrupted; all processes ended"
    assert not alive(pids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rollouts", "3"], "num_attention_heads 4 is not a multiple of TP size 3"),
        (["--prompts", "8"], "choose another --prompts than 8"),
        (["--vocab", "8"], "--vocab 8 must be above --base 8"),
        (["--rollouts", "two"], "--rollouts 'two' must be sizes like 2,1"),
        (["--control", "--no-sync"], "leave out --control"),
        (["--json", "run.svg"], "--json 'run.svg' must end in .json"),
        (["--json", "/nowhere/run.json"], "in a folder that can be written"),
    ],
)
def test_options_that_cannot_work_are_refused(start, options, message):
    demo = start(*options)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert message in err
