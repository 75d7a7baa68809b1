"""Shards of one group on one host, in processes of their own: what all hold enters the host once."""

import pytest

from .programs.driver import Cluster, together

#: The rows that the shards share, and the table that each of them holds.
BYTES, TABLE = 6 << 20, 24 << 20
SHARDS = 3


@pytest.fixture
def cluster():
    running = Cluster()
    yield running
    running.close()


@pytest.fixture
def gate(cluster):
    return cluster.gate()


@pytest.fixture
def trainer(cluster, gate):
    (trainer,) = cluster.group("trainer", role="trainer", bytes=BYTES, table=TABLE, gates=[gate])
    trainer.do("publish", version=1)
    return trainer


def rollout(cluster, **options):
    return cluster.group("rollout", SHARDS, bytes=BYTES, table=TABLE, **options)


def test_what_all_hold_comes_once_over_tcp(cluster, gate, trainer):
    shards = rollout(cluster)
    for version in (1, 2, 3):
        if version > 1:
            trainer.do("unpublish")
            trainer.do("publish", version=version)
        passed = gate.passed
        came = together(shards, "update", version=version, staged=version == 3)
        assert all(one["right"] and one["version"] == version for one in came)
        assert sum(one["siblings"] for one in came) == (SHARDS - 1) * TABLE
        assert sum(sum(one["given"]) for one in came) == BYTES + TABLE
        assert BYTES + TABLE < gate.passed - passed < 1.01 * (BYTES + TABLE)


def test_a_source_on_the_same_host_gives_everything(cluster):
    (trainer,) = cluster.group("trainer", role="trainer", bytes=BYTES, table=TABLE, way="auto")
    trainer.do("publish", version=1)
    came = together(rollout(cluster, way="auto"), "update", version=1)
    assert all(one["right"] for one in came)
    # Where processes of a host may not read each other's memory, all is as far as another host.
    near = all(one["way"] != "tcp" for one in came)
    assert sum(one["siblings"] for one in came) == (0 if near else (SHARDS - 1) * TABLE)


def test_a_shard_that_is_killed_leaves_nobody_waiting_for_what_it_was_to_bring(cluster, gate, trainer):
    shards = rollout(cluster)
    together(shards, "update", version=1)
    trainer.do("unpublish")
    trainer.do("publish", version=2)
    gate.hold_after(TABLE // 2)
    for shard in shards:
        shard.start("update", version=2)
    gate.wait_held()
    shards[1].kill()
    gate.open()
    for left in (shards[0], shards[2]):
        assert left.outcome("update")["error"] == "GroupBroken"
        left.kill()
    came = together(rollout(cluster), "update", version=2)
    assert all(one["right"] for one in came) and sum(one["siblings"] for one in came) == (SHARDS - 1) * TABLE


def test_a_call_that_goes_on_where_an_earlier_one_ended_shares_nothing_that_came_before(cluster, gate, trainer):
    shards = rollout(cluster)
    gate.hold_after(TABLE // 2)
    for shard in shards:
        shard.start("update", version=1, deadline=2.0)
    gate.wait_held()
    assert all(shard.outcome("update")["error"] == "Timeout" for shard in shards)
    gate.open()
    assert all(one["right"] for one in together(shards, "update", version=1))
    trainer.do("unpublish")
    trainer.do("publish", version=2)
    came = together(shards, "update", version=2)
    assert all(one["right"] for one in came) and sum(one["siblings"] for one in came) == (SHARDS - 1) * TABLE
