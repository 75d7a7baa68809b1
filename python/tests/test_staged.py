"""Staged updates: the old version serves until the new one is here, on real processes."""

import json
import signal

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON
from .programs.driver import Cluster, together

#: So many that no socket's buffers hold them.
BYTES = 96 << 20
#: What has passed when a transfer is in its middle.
SOME = 8 << 20


@pytest.fixture
def cluster():
    running = Cluster(reconnect=0.0)
    yield running
    running.close()


@pytest.fixture
def pair(cluster):
    """Two shards that hold version 1, and a trainer behind a gate that has gone on to version 2."""
    trainer = cluster.group("trainer", role="trainer", bytes=BYTES, gates=[cluster.gate()])
    trainer[0].do("publish", version=1)
    pair = cluster.group("pair", 2, bytes=BYTES)
    together(pair, "replicate", version=1)
    trainer[0].do("unpublish")
    trainer[0].do("publish", version=2)
    pair[0].trainer = trainer[0]
    return pair


def in_the_middle(cluster, pair):
    """Lets a staged update run until some bytes are there and no more come."""
    (gate,) = cluster.gates
    gate.hold_after(SOME)
    for shard in pair:
        shard.start("update", version="latest", staged=True)
    gate.wait_held()


def test_the_old_version_is_used_and_served_until_the_new_one_is_here(cluster, pair):
    in_the_middle(cluster, pair)
    for shard in pair:
        assert shard.do("holds", version=1), "the memory changed under its user"
    assert pair[0].trainer.do("list") == {"1": ["pair"], "2": ["trainer"]}
    # Another replica reads the old version from them meanwhile.
    other = cluster.group("other", bytes=BYTES)
    moved = other[0].do("replicate", version=1)
    assert moved["right"] and moved["source"] == "pair"
    cluster.gates[0].open()
    for shard in pair:
        moved = shard.value("update")
        assert moved["right"] and moved["version"] == 2 and moved["staged"] == BYTES // 2
    other[0].start("update", version="latest", staged=True)
    assert other[0].value("update")["right"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_source_that_dies_in_the_middle_leaves_the_old_version_whole(cluster, pair, number):
    in_the_middle(cluster, pair)
    pair[0].trainer.signal(number)
    cluster.gates[0].open()
    for shard in pair:
        said = shard.outcome("update")
        assert said["error"] == "SourceLost" and said["held"] == 1, said
    for shard in pair:
        assert shard.do("holds", version=1), "not bit for bit what it was"
    # And it is served, to others of another layout as well.
    other = cluster.group("other", 3, bytes=BYTES)
    for moved in together(other, "replicate", version=1):
        assert moved["right"] and moved["source"] == "pair"


def test_a_shard_that_dies_in_the_middle_breaks_its_group_alone(cluster, pair):
    in_the_middle(cluster, pair)
    pair[0].kill()
    said = pair[1].outcome("update")
    assert said["error"] == "GroupBroken" and said["held"] is None, said
    cluster.gates[0].open()
    other = cluster.group("other", bytes=BYTES)
    assert other[0].do("replicate", version="latest")["right"]


def test_closing_in_the_middle_does_not_wait_for_the_new_version(cluster, pair):
    in_the_middle(cluster, pair)
    for shard in pair:
        shard.start("close")
    for shard in pair:
        # In either order: each is said by a thread of its own.
        said = [json.loads(shard.line()) for _ in range(2)]
        ends = {line["call"]: line.get("error") for line in said}
        assert ends in ({"update": "Misuse", "close": None}, {"update": "GroupBroken", "close": None})
    cluster.gates[0].open()


def test_what_was_copied_into_place_is_counted(server):
    weights = np.arange(64, dtype="u4")
    with wc.open("policy", wc.Replica("trainer"), role="trainer", server=server.address) as trainer:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        memory = np.full(192, 7, "u4")
        with wc.open("policy", wc.Replica("late"), server=server.address) as late:
            late.register(wc.Layout().add(memory[:64], "w"))
            late.replicate(1, deadline=SOON)
            trainer.unpublish(deadline=SOON)
            weights += 1
            trainer.publish(2, deadline=SOON)
            updated = late.update(staged=True, deadline=SOON)
            assert updated.changed and updated.staged == weights.nbytes
            assert updated.install_seconds > 0
            assert (memory[:64] == weights).all()
            assert (memory[64:] == 7).all()


def test_a_staged_update_without_room_changes_nothing(server):
    weights = np.ones(1 << 10, "u4")
    with wc.open("policy", wc.Replica("trainer"), role="trainer", server=server.address) as trainer:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        memory = np.zeros_like(weights)
        with wc.open(
            "policy", wc.Replica("late"), staging_bytes=4095, server=server.address
        ) as late:
            late.register(wc.Layout().add(memory, "w"))
            late.replicate(1, deadline=SOON)
            with pytest.raises(wc.NoRoom, match="staging_bytes") as raised:
                late.update(staged=True, deadline=SOON)
            assert (raised.value.bytes, raised.value.limit) == (4096, 4095)
            assert late.version == 1 and (memory == 1).all()


def test_one_shard_without_room_ends_the_call_of_all(group, server):
    weights = np.arange(8, dtype="u4")
    trainer = group("trainer", [wc.Layout().add(weights, "w")], role="trainer")
    trainer[0].publish(1, deadline=SOON)
    halves = [np.zeros(4, "u4") for _ in range(2)]

    def half(index):
        return wc.Layout().add(halves[index], wc.part("w", shape=(8,), dim=0, index=index, of=2))

    limits = [None, 15]
    handles = [
        wc.open("policy", wc.Replica("late", n, 2), staging_bytes=limits[n], server=server.address)
        for n in range(2)
    ]
    late = type(trainer)(handles)
    try:
        indices = {id(handle): n for n, handle in enumerate(handles)}
        late.all(lambda handle: handle.register(half(indices[id(handle)]), deadline=SOON))
        late.all(lambda handle: handle.replicate(1, deadline=SOON))
        ends = late.each(lambda handle: handle.update(staged=True, deadline=SOON))
        assert [type(end) for end in ends] == [wc.LayoutMismatch, wc.NoRoom]
        assert "shard 1" in str(ends[0]) and "staging_bytes" in str(ends[0])
        assert [handle.version for handle in handles] == [1, 1]
    finally:
        for handle in handles:
            handle.close(deadline=SOON)
