"""Processes die in the middle of a transfer: the others learn it, by type and in time.

A gate in front of the source's data port holds a transfer in its middle; every wait has a deadline.
"""

import json
import signal

import pytest

from .programs.driver import Cluster, together

#: So many that no socket's buffers hold them.
BYTES = 96 << 20
#: What has passed when a transfer is in its middle.
SOME = 8 << 20
LOST = {"SourceLost", "VersionUnavailable", "Timeout"}


@pytest.fixture
def cluster():
    running = Cluster(reconnect=0.0)  # whoever loses the server ends: see test_failover.py
    yield running
    running.close()


@pytest.fixture
def trainer(cluster):
    return cluster.gated_trainer(BYTES)


def in_the_middle(cluster, readers):
    """Lets the readers' `replicate` run until some bytes are there and no more come."""
    cluster.hold_after(SOME)
    for reader in readers:
        reader.start("replicate", version="latest")
    cluster.wait_held()
    for reader in readers:
        assert 0 < reader.moving() < BYTES // len(readers)


def failed(worker, call):
    """The type of a call's error; the worker must hold nothing."""
    said = worker.outcome(call)
    assert said.get("error"), said
    assert said["held"] is None, "a half-written copy counts"
    return said["error"]


def leave(workers):
    """Handles that have failed close without another word."""
    for worker in workers:
        worker.start("close")
    for worker in workers:
        worker.value("close")


def test_a_killed_rollout_shard_breaks_its_group_alone(cluster, trainer):
    pair = cluster.group("pair", 2, bytes=BYTES)
    single = cluster.group("single", bytes=BYTES)
    in_the_middle(cluster, pair)
    pair[0].kill()
    single[0].start("replicate", version=1)
    assert failed(pair[1], "replicate") == "GroupBroken"
    cluster.open_gates()
    assert single[0].value("replicate")["right"]
    together(trainer, "unpublish")
    assert single[0].do("list") == {"1": ["single"]}


def test_unpublish_does_not_wait_for_a_dead_reader(cluster, trainer):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    pair[0].kill()
    together(trainer, "unpublish")
    assert failed(pair[1], "replicate") in {"GroupBroken"} | LOST
    cluster.open_gates()
    single = cluster.group("single", bytes=BYTES)
    together(trainer, "publish", version=2)
    moved = single[0].do("replicate", version="latest")
    assert moved["right"] and moved["version"] == 2


def test_a_restarted_shard_takes_the_place_of_a_killed_one(cluster, trainer):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    pair[0].kill()
    cluster.open_gates()
    again = cluster.begin("pair", 2, bytes=BYTES)  # at once: they wait for the lease to run out
    assert failed(pair[1], "replicate") == "GroupBroken"
    leave(pair[1:])
    cluster.ready(again)
    for moved in together(again, "replicate", version="latest"):
        assert moved["right"] and moved["source"] == "trainer"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_trainer_rank_is_told_to_its_readers(cluster, trainer, number):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    trainer[0].signal(number)
    cluster.open_gates()
    errors = {failed(reader, "replicate") for reader in pair}
    assert len(errors) == 1 and errors < LOST, errors
    trainer[1].start("list")
    assert failed(trainer[1], "list") == "GroupBroken"
    for reader in pair:
        reader.start("list")
    assert [reader.value("list") for reader in pair] == [{}, {}]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_readers_go_on_with_another_source(cluster, number):
    sources = {}
    for name in ("one", "two"):
        gates = [cluster.gate()]
        sources[name] = cluster.group(name, role="trainer", bytes=BYTES, gates=gates)
        sources[name][0].do("publish", version=1)
    pair = cluster.group("pair", 2, bytes=BYTES)
    cluster.hold_after(SOME)
    for reader in pair:
        reader.start("replicate", version=1)
    for reader in pair:
        assert 0 < reader.moving() < BYTES // 2
    (lost,) = [name for name in sources if cluster.readers(name)]
    (other,) = set(sources) - {lost}
    sources[lost][0].signal(number)
    cluster.open_gates()
    for reader in pair:
        moved = reader.value("replicate")
        assert moved["right"] and moved["source"] == other
    sources[other][0].do("unpublish")


def test_a_stopped_trainer_that_comes_back_has_lost_its_place(cluster, trainer):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    trainer[0].signal(signal.SIGSTOP)
    assert {failed(reader, "replicate") for reader in pair} < LOST
    trainer[0].signal(signal.SIGCONT)
    for rank in trainer:
        rank.start("unpublish")
    assert {failed(rank, "unpublish") for rank in trainer} <= {"GroupBroken", "ServerUnreachable"}


@pytest.mark.parametrize("finish", [False, True], ids=["held", "read to the end"])
def test_a_killed_server_is_told_to_everybody(cluster, trainer, finish):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    cluster.server.kill()
    if finish:
        cluster.open_gates()
    errors = {failed(reader, "replicate") for reader in pair}
    assert errors <= {"ServerUnreachable", "InDoubt"}, errors
    for rank in trainer:
        rank.start("unpublish")
    assert {failed(rank, "unpublish") for rank in trainer} == {"ServerUnreachable"}
    leave([*trainer, *pair])


def test_closing_does_not_wait_for_a_killed_server(cluster, trainer):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    cluster.server.kill()
    for worker in [*trainer, *pair]:
        worker.start("close", deadline=1.0)
    for worker in trainer:
        assert worker.value("close") is None
    for reader in pair:
        ends = {said["call"]: said for said in (json.loads(reader.line()) for _ in range(2))}
        assert ends["replicate"]["error"] == "Misuse", "closed during the call"
        assert "error" not in ends["close"] and ends["close"]["held"] is None


def test_a_new_server_starts_from_nothing(cluster, trainer):
    pair = cluster.group("pair", 2, bytes=BYTES)
    in_the_middle(cluster, pair)
    cluster.server.kill()
    cluster.restart_server()
    errors = {failed(reader, "replicate") for reader in pair}
    assert errors <= {"ServerUnreachable", "InDoubt", "GroupBroken"}, errors
    fresh = cluster.group("trainer", role="trainer", bytes=1 << 20)
    fresh[0].do("publish", version=1)
    rollout = cluster.group("rollout", bytes=1 << 20)
    assert rollout[0].do("replicate", version=1)["right"]
