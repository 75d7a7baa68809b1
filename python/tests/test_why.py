"""Planted hangs: `why` and the `Timeout` itself say what is waited for, and who holds it up."""

import signal
import socket
import time

import pytest

import weightcast as wc

from .programs.driver import SOON, Cluster, together

#: So many that no socket's buffers hold them.
BYTES = 96 << 20
#: What has passed when a transfer is in its middle.
SOME = 8 << 20
#: Seconds until a call that hangs gives up: long enough to ask why.
HANGS = 4.0


@pytest.fixture
def cluster():
    # A lease that outlasts the test: whoever is stopped or killed is still a member.
    running = Cluster(lease=120.0, reconnect=0.0)
    yield running
    running.close()


def why(cluster, replica, *parts):
    """Asks until the sentence has all parts; returns the answer."""
    until = time.monotonic() + SOON
    while True:
        answer = wc.why(replica, server=cluster.server.address)
        if all(part in answer.sentence for part in parts) or time.monotonic() > until:
            assert not [part for part in parts if part not in answer.sentence], answer.sentence
            return answer


def timed_out(worker, call, *parts):
    """The call runs out of time, and its error has the same words."""
    said = worker.outcome(call)
    assert said["error"] == "Timeout", said
    assert not [part for part in parts if part not in said["message"]], said["message"]


def test_a_dead_trainer_rank(cluster):
    ranks = cluster.group("trainer", 2, role="trainer")
    together(ranks, "publish", version=1)
    ranks[1].kill()
    ranks[0].start("unpublish", deadline=HANGS)
    parts = ["shard 1 of replica trainer to call", "shard 1 has no connection, last heard"]
    answer = why(cluster, "trainer", *parts, "evicted in", "last called publish(1)")
    assert answer.waits and not answer.held_up_by
    timed_out(ranks[0], "unpublish", *parts)


def test_a_shard_that_never_calls(cluster):
    pair = cluster.group("pair", 2)
    pair[0].start("replicate", version="latest", deadline=HANGS)
    parts = ["shard 1 of replica pair to call", "shard 1 is connected, last heard", "register"]
    why(cluster, "pair", *parts)
    timed_out(pair[0], "replicate", *parts)


def test_a_slow_source(cluster):
    cluster.gated_trainer(BYTES)
    single = cluster.group("single", bytes=BYTES)
    cluster.hold_after(SOME)
    single[0].start("replicate", version=1, deadline=HANGS)
    cluster.wait_held()
    parts = ["shard 0 to read version 1", "the source is trainer", "is connected, last heard"]
    why(cluster, "single", *parts)
    timed_out(single[0], "replicate", *parts)


def test_a_full_drain(cluster):
    trainer = cluster.gated_trainer(BYTES)
    single = cluster.group("single", bytes=BYTES)
    cluster.hold_after(SOME)
    single[0].start("replicate", version=1)
    cluster.wait_held()
    for rank in trainer:
        rank.start("unpublish", deadline=HANGS)
    parts = ["single to finish reading from replica trainer", "readers are cut off in"]
    answer = why(cluster, "trainer", *parts)
    assert answer.held_up_by[0] == "single"
    # The drain ends with the call, which cuts the reader off and is answered.
    cluster.open_gates()
    for rank in trainer:
        rank.outcome("unpublish")


def test_a_missing_seal(cluster):
    ranks = cluster.group("trainer", 2, role="trainer")
    single = cluster.group("single")
    ranks[1].start("publish", version=1)
    why(cluster, "trainer", "shard 0 of replica trainer to call")
    ranks[1].signal(signal.SIGSTOP)
    ranks[0].start("publish", version=1)
    single[0].start("replicate", version=1, deadline=HANGS)
    # The stopped rank has called, so the version is listed; it digests nothing, and serves nothing.
    why(cluster, "single", "to read version 1", "the source is trainer")
    told = why(cluster, "trainer", "holds 1 (epoch ", "the digests of shard 1 are missing")
    assert not told.waits
    said = single[0].outcome("replicate")
    assert said["error"] == "Timeout" and "trainer" in said["message"], said


def test_a_data_port_that_answers_nobody(cluster):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        trainer = cluster.group("trainer", role="trainer", data_advertise=address)
        trainer[0].do("publish", version=1)
        single = cluster.group("single")
        single[0].start("replicate", version=1, deadline=HANGS)
        parts = ["shard 0 to read version 1", f"at data port {address}"]
        why(cluster, "single", *parts)
        timed_out(single[0], "replicate", *parts)


def test_a_stopped_server(cluster):
    single = cluster.group("single")
    cluster.server.signal(signal.SIGSTOP)
    single[0].start("list", deadline=HANGS)
    with pytest.raises(wc.ServerUnreachable) as told:
        wc.why("single", server=cluster.server.address)
    assert cluster.server.address in str(told.value)
    said = single[0].outcome("list")
    assert said["error"] in {"ServerUnreachable", "Timeout"}, said
    assert cluster.server.address in said["message"], said


def test_replicas_that_wait_for_each_other(cluster):
    trainer = cluster.group("trainer", role="trainer")
    trainer[0].do("publish", version=1)
    single = cluster.group("single")
    # Both deadlines in one tick would end the cycle before the second error tells of it.
    single[0].start("replicate", version=2)
    trainer[0].start("wait_held", version=2, deadline=HANGS)
    parts = ["closes a cycle of trainer, single"]
    answer = why(cluster, "trainer", *parts)
    assert answer.cycle == ("trainer", "single") and answer.held_up_by == ("single",)
    assert why(cluster, "single", "closes a cycle of single, trainer").cycle == ("single", "trainer")
    timed_out(trainer[0], "wait_held", *parts)


def test_a_replica_that_waits_for_nothing(cluster):
    cluster.group("single")
    answer = why(cluster, "single", "nothing is waited for", "holds nothing, last called register")
    assert not answer.waits and str(answer) == answer.sentence


def test_a_replica_that_is_not_there(cluster):
    cluster.group("single")
    with pytest.raises(wc.Misuse, match="no replica other is known: there are single"):
        wc.why("other", server=cluster.server.address)
