"""The example: what it adds to a loop, that it learns, and what it survives."""

from pathlib import Path

import pytest
import ray

from weightcast.examples import ray_rl


def test_the_integration_is_a_few_lines():
    added = [line for line in Path(ray_rl.__file__).read_text().splitlines() if line.endswith("# +")]
    assert 0 < len(added) <= 15
    # What is not marked does without weightcast.
    rest = [line for line in Path(ray_rl.__file__).read_text().splitlines() if line not in added]
    assert not [line for line in rest if "wcr." in line and "sync: wcr.WeightSync" not in line]


@pytest.mark.usefixtures("one_node")
def test_it_learns():
    rewards = ray_rl.loop(steps=15, rollouts=2)
    assert len(rewards) == 15
    assert sum(rewards[-3:]) > 2 * sum(rewards[:3])


@pytest.mark.full
@pytest.mark.parametrize("lost", ["server", "trainer", "rollout"])
def test_it_goes_on_where_a_node_is_lost(lost: str):
    nodes = ray_rl.Nodes(3)
    try:
        rewards = ray_rl.loop(steps=16, rollouts=2, cluster=nodes, lose=lost)
        assert sum(node["Alive"] for node in ray.nodes()) == 3, "no node was lost"
    finally:
        nodes.close()
    assert len(rewards) == 16
    # It has not begun anew when the node was lost, half-way.
    assert min(rewards[8:]) > max(rewards[:3])
    assert sum(rewards[-3:]) > 2 * sum(rewards[:3])
