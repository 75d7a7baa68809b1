"""What the compared loop's children report becomes JSON, a table and a picture."""

import json

import pytest

pytest.importorskip("torch")

from weightcast.examples.rl.account import Account
from weightcast.examples.rl.settings import LoopSettings
from weightcast.examples.rl_loop.backlog import Backlog
from weightcast.examples.rl_loop.picture import draw, write_runs

BEGAN = 100.0


def account(**options) -> Account:
    """Two steps and one rollout, as its children would have told it."""
    made = Account(LoopSettings(iterations=2, rollouts=1, **options), began=BEGAN)
    for step in range(2):
        at = BEGAN + 1 + step
        moved = {"bytes": 10, "verified": 10, "seconds": 0.25, "version": step, "asked": at, "committed": at + 0.375}
        made.on_report("rollout-0/0", {"event": "update"} | moved)
        learnt = {"step": step, "reward": 0.25 * step, "staleness": 0.5, "drift": 0.0, "waited": 0.125}
        stamps = {"published": at - 0.5, "unpublished": at + 0.4375}
        made.on_report("trainer/0", {"event": "step", "samples_of": {"0": 16, "1": 16}} | learnt | stamps)
    made.on_report("trainer/0", {"event": "stalled", "seconds": 0.5})
    made.on_report("trainer/1", {"event": "stalled", "seconds": 0.25})
    return made


def backlog() -> Backlog:
    made = Backlog(4)
    made.publish(0, "aa")
    made.stale.append(3)
    made.foreign.append(2)
    return made


def test_what_is_written():
    run = account().as_json(backlog())
    assert run["staleness"] == {0: 32, 1: 32}
    assert run["samples"] == {"learnt": 64, "dropped": 3, "foreign": 2}
    assert run["digests"] == {0: "aa"}
    assert run["stall"] == {"rollouts_s": 0.375, "trainers_s": 0.5}, "the first version is waited for, not stalled for"
    assert run["waited_s"] == 0.25 and run["seconds"] == 2.4375 and run["lost"] == []
    assert run["total"] == {"bytes": 20, "verified": 20, "seconds": 0.5, "shards": 2}
    assert run["settings"]["rollouts"] == "1" and "json" not in run["settings"]


def test_a_loss_is_told_and_its_next_life_waits_for_a_version_again(capsys):
    made = account()
    made.on_loss("rollout-0", "rollout-0 rank 0 was killed by SIGKILL\n  | output")
    assert capsys.readouterr().out.endswith("lost: rollout-0 rank 0 was killed by SIGKILL\n")
    stalled = made.rollout_stall
    moved = {"bytes": 10, "verified": 10, "seconds": 0.25, "version": 1, "asked": 103.0, "committed": 104.0}
    made.on_report("rollout-0/0", {"event": "update"} | moved)
    assert made.rollout_stall == stalled
    (lost,) = made.as_json(backlog())["lost"]
    assert lost["rollout"] == "rollout-0" and "SIGKILL" in lost["why"]


def test_the_picture_and_the_table_have_it(tmp_path, capfd):
    path = tmp_path / "run.json"
    made = account()
    made.show(backlog())
    write_runs(str(path), [made.as_json(backlog())])
    assert json.loads(path.read_text())["weightcast"] == "demo/1"
    assert draw(str(path))
    out = capfd.readouterr().out
    for text in "64 learnt (0 behind: 32, 1 behind: 32); 3 dropped as too old, 2 of unknown", "0 unverified":
        assert text in out


def test_what_a_run_fails_for():
    assert account().failure() is None
    assert "less than --min-rise 0.5" in account(min_rise=0.5).failure()
    made = account()
    made.versions[1].verified -= 1
    assert made.failure() == "1 bytes were not verified"
