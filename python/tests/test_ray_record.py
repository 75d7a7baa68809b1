"""What a loop on Ray writes down of its steps, what that comes to, and its picture."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from weightcast.examples.ray_loss import row
from weightcast.examples.ray_record import Record, write

TITLE, TEXT = ("{http://www.w3.org/2000/svg}" + name for name in ("title", "text"))
BOTH = {"a", "b"}


class Loop:
    """A loop of two rollouts, whose clock and servers a test sets."""

    def __init__(self) -> None:
        self.now, self.servers = 50.0, ("s:1", "s:2")
        self.record = Record(["a", "b"], clock=lambda: self.now, servers=lambda: self.servers)

    def step(self, at: float, newest: int, updated: set[str], versions=None, reward: float = 0.5) -> None:
        self.now = 50.0 + at
        self.record.learnt(reward, newest, [newest] * len(updated) if versions is None else versions, updated)

    def lost_server(self) -> dict:
        """A step; the server's node is lost, with a rollout; a step with all, one in vain, two with one
        rollout; the server moves; all follow again."""
        self.step(4.0, 1, BOTH, reward=0.125)
        self.step(4.5, 2, BOTH)
        self.now = 55.0
        self.record.happened("node lost", "rollout 1 and server")
        self.step(6.5, 3, BOTH)
        self.record.in_vain("the trainer is lost: ActorDiedError")
        self.step(9.0, 5, {"a"})
        self.servers = ("s:2", "t:1")
        self.step(10.0, 6, {"a"})
        self.step(10.25, 7, BOTH, reward=1.0)
        return self.record.as_json(lost="server", nodes=3)


def test_staleness_is_in_versions_behind_the_newest():
    loop = Loop()
    loop.step(1.0, 1, BOTH)
    loop.step(2.0, 4, BOTH, versions=[4, 1])
    loop.step(3.0, 6, {"b"}, versions=[6])
    # A rollout that Ray has started again has no version at first.
    loop.step(4.0, 7, BOTH, versions=[7, None])
    steps = loop.record.steps
    assert [(step.staleness, step.stalest) for step in steps] == [(0, 0), (1.5, 3), (0, 0), (3.5, 7)]
    # That which gave no samples counts here: it had version 4 last.
    assert [step.furthest for step in steps] == [0, 0, 2, 0]
    assert [(step.step, step.version, step.ended_s) for step in steps] == [(0, 1, 1), (1, 4, 2), (2, 6, 3), (3, 7, 4)]


def test_a_rollout_that_never_had_a_version_is_behind_all():
    loop = Loop()
    loop.step(1.0, 1, {"a"})
    loop.step(2.0, 2, {"a"})
    assert [step.furthest for step in loop.record.steps] == [1, 2]


def test_events_are_told_once_with_the_step_that_comes_next():
    events = [(each["what"], each["step"], each["at_s"]) for each in Loop().lost_server()["events"]]
    assert events == [
        ("node lost", 2, 5.0),
        ("step in vain", 3, 6.5),
        ("rollouts behind", 3, 9.0),
        ("server moved", 4, 10.0),
        ("rollouts follow again", 5, 10.25),
    ]
    details = [each["detail"] for each in Loop().lost_server()["events"]]
    assert details == ["rollout 1 and server", "the trainer is lost: ActorDiedError", "1", "", ""]


def test_the_sums_of_a_run_that_lost_a_node():
    assert Loop().lost_server()["sums"] == {
        "steps": 6,
        "in_vain": 1,
        "without_all": 2,
        "stalest": 0,
        "furthest": 3,
        "median_step_s": 1.0,  # of 0.5, 2, 2.5, 1 and 0.25: not of the first, which waits for the actors' start
        "longest_step_s": 2.5,
        "reward": {"first": 0.375, "last": pytest.approx(2 / 3)},
        # Since the node was lost.
        "after_loss_s": {"next_step": 1.5, "rollouts_follow": 5.25, "server_moved": 5.0},
    }


def test_what_never_came_has_no_time():
    loop = Loop()
    loop.step(1.0, 1, BOTH)
    assert "after_loss_s" not in loop.record.as_json()["sums"]
    loop.record.happened("node lost", "rollout 0")
    found = loop.record.as_json(lost="rollout")
    assert found["sums"]["after_loss_s"] == {"next_step": None, "rollouts_follow": None, "server_moved": None}
    assert row(found) == "rollout | 0.50 to 0.50 | 0 | 0 | 0 | 0 | 1.00 s | 1.00 s | - | - | -"
    # What was before the loss is none of its doing.
    loop = Loop()
    loop.step(1.0, 1, {"a"})
    loop.servers = ("s:2", "t:1")
    loop.step(2.0, 2, BOTH)
    loop.record.happened("node lost", "rollout 0")
    loop.step(3.0, 3, BOTH)
    after = loop.record.as_json()["sums"]["after_loss_s"]
    assert after == {"next_step": 1.0, "rollouts_follow": None, "server_moved": None}


def test_the_picture_has_its_numbers(tmp_path):
    without = Loop()
    for number in range(4):
        without.step(2.0 * number, number + 1, BOTH, reward=0.25)
    path = tmp_path / "loss.json"
    write(str(path), [without.record.as_json(lost=None, nodes=3), Loop().lost_server()])
    written = json.loads(path.read_text())
    assert set(written) == {"weightcast", "machine", "runs"} and written["weightcast"] == "ray-loss/1"
    assert set(written["machine"]) == {"cpu", "cpus", "kernel"}
    subprocess.run([sys.executable, "-m", "weightcast", "plot", str(path)], check=True, timeout=60)
    drawn = ElementTree.parse(tmp_path / "loss.svg")
    tips = [tip.text for tip in drawn.iter(TITLE)]
    for tip in [
        "no loss, step 3: 0.250 fraction of right answers",
        "node of the server lost, step 0: 0.125 fraction of right answers",
        "node of the server lost, step 4: 3 versions behind",
        "node of the server lost, step 5: 10.2 seconds since the job began",
    ]:
        assert tip in tips, tips
    words = [text.text for text in drawn.iter(TEXT)]
    # In each chart.
    assert words.count("node lost") == 4
    assert any("node lost before step 2 (rollout 1 and server)" in each for each in words), words
