"""The example: what it adds to a loop, that it learns, and what it survives."""

import json
from pathlib import Path
from typing import Any

import pytest
import ray

from weightcast.examples import ray_rl

#: Of a run that loses a node half-way.
STEPS = 16


def test_the_integration_is_a_few_lines():
    added = [line for line in Path(ray_rl.__file__).read_text().splitlines() if line.endswith("# +")]
    assert 0 < len(added) <= 15
    # What is not marked does without weightcast.
    rest = [line for line in Path(ray_rl.__file__).read_text().splitlines() if line not in added]
    assert not [line for line in rest if "wcr." in line and "sync: wcr.WeightSync" not in line]


@pytest.mark.usefixtures("one_node")
def test_it_learns():
    record = ray_rl.loop(steps=15, rollouts=2)
    rewards = [step.reward for step in record.steps]
    assert len(rewards) == 15
    assert sum(rewards[-3:]) > 2 * sum(rewards[:3])
    # Rollouts say themselves with which version they generated.
    assert {step.stalest for step in record.steps} == {0}


@pytest.mark.full
@pytest.mark.parametrize("lost", ["server", "trainer", "rollout"])
def test_it_goes_on_where_a_node_is_lost(lost: str):
    nodes = ray_rl.Nodes(3)
    try:
        record = ray_rl.loop(steps=STEPS, rollouts=2, cluster=nodes, lose=lost)
        assert sum(node["Alive"] for node in ray.nodes()) == 3, "no node was lost"
    finally:
        nodes.close()
    found = json.loads(json.dumps(record.as_json(lost=lost, nodes=3)))
    rewards = [step["reward"] for step in found["steps"]]
    assert len(rewards) >= STEPS
    # It has not begun anew when the node was lost, half-way.
    assert min(rewards[STEPS // 2 :]) > max(rewards[:3])
    assert sum(rewards[-3:]) > 2 * sum(rewards[:3])
    # Whatever is lost, what is learnt from is of the newest version.
    assert {(step["staleness"], step["stalest"]) for step in found["steps"]} == {(0, 0)}
    check_events(found, lost)


def check_events(found: dict[str, Any], lost: str) -> None:
    """What was lost is told, and that it came back: the server elsewhere, rollouts with the newest version."""
    told = found["events"]
    (loss,) = (event for event in told if event["what"] == "node lost")
    assert loss["step"] == STEPS // 2 and lost in loss["detail"]
    after, sums = found["sums"]["after_loss_s"], found["sums"]
    assert after["next_step"] > 0
    if "server" in loss["detail"]:
        assert after["server_moved"] is not None, told
    # No step ends without a trainer: a rollout that was lost with it may be back before the next one does.
    missed = "trainer" not in loss["detail"] or sums["furthest"] > 0
    if "rollout" in loss["detail"] and missed:
        assert sums["furthest"] > 0 and after["rollouts_follow"] is not None, told
    if "trainer" in loss["detail"]:
        assert sums["in_vain"] > 0, told
    # All have the newest version at the end.
    assert found["steps"][-1]["furthest"] == 0, told
