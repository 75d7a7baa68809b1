"""Several replicas that hold a version are one reader's sources at once, on real processes."""

import signal

import pytest

from .programs.driver import Cluster, together

#: So many that no socket's buffers hold them.
BYTES = 96 << 20
#: What has passed of each source when a transfer is in its middle.
SOME = 8 << 20


@pytest.fixture
def cluster():
    running = Cluster(reconnect=0.0, stripes=8)
    yield running
    running.close()


@pytest.fixture
def pair(cluster):
    """Two trainers that have published version 1, as ranks of DDP do, each behind a gate."""
    both = [
        cluster.group(name, role="trainer", bytes=BYTES, gates=[cluster.gate()])[0] for name in ("first", "second")
    ]
    for one in both:
        one.do("publish", version=1)
    return both


def given(moved, shard=BYTES):
    """What the first and the second gave of all bytes of a shard."""
    assert moved["right"] and (moved["source"], moved["helpers"]) == ("first", ["second"])
    assert sum(moved["given"]) == shard
    return moved["given"]


def test_each_gives_what_the_other_does_not(cluster, pair):
    cluster.hold_after(SOME)
    reader = cluster.group("reader", bytes=BYTES)[0]
    reader.start("replicate", version=1)
    cluster.wait_held()
    cluster.open_gates()
    first, second = given(reader.value("replicate"))
    assert min(first, second) > SOME / 2, "both have given while they could"
    assert sum(gate.passed for gate in cluster.gates) < 1.1 * BYTES, "hardly anything came twice"


@pytest.mark.parametrize("stands", [0, 1])
def test_one_that_stands_still_is_read_around(cluster, pair, stands):
    """It lives, and nobody calls it lost: the reader has the version before it goes on."""
    cluster.gates[stands].hold_after(SOME)
    reader = cluster.group("reader", bytes=BYTES)[0]
    moved = reader.do("replicate", version=1)
    # A reader that takes long leaves it, as any slow source.
    gave = dict(zip([moved["source"], *moved["helpers"]], moved["given"], strict=True))
    assert moved["right"] and gave.get(["first", "second"][stands], 0) <= SOME
    cluster.open_gates()


def test_readers_of_another_layout_draw_from_both(cluster, pair):
    for moved in together(cluster.group("reader", 3, bytes=BYTES), "replicate", version=1):
        given(moved, BYTES // 3)


def test_readers_that_are_behind_have_one_each(cluster, pair):
    """They would only take each other's."""
    cluster.hold_after(SOME)
    readers = [cluster.group(name, shards, bytes=BYTES) for name, shards in (("one", 1), ("three", 3))]
    for group in readers:
        for reader in group:
            reader.start("replicate", version=1)
    cluster.wait_held()
    assert sorted([*cluster.readers("first"), *cluster.readers("second")]) == ["one", "three"]
    cluster.open_gates()
    for group in readers:
        for reader in group:
            moved = reader.value("replicate")
            assert moved["right"] and moved["helpers"] == []


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_dies_in_the_middle_costs_its_pieces(cluster, pair, dies, number):
    cluster.hold_after(SOME)
    reader = cluster.group("reader", bytes=BYTES)[0]
    reader.start("replicate", version=1)
    cluster.wait_held()
    assert cluster.readers("first") == cluster.readers("second") == ["reader"]
    pair[dies].signal(number)
    cluster.open_gates()
    moved = reader.value("replicate")
    assert moved["right"], "not the version's bytes"
    if number == signal.SIGKILL:
        assert (moved["source"], moved["helpers"]) == (pair[1 - dies].name, [])
    # What had come of both is not asked for again.
    assert cluster.gates[1 - dies].passed < BYTES


def test_a_staged_update_draws_from_both(cluster, pair):
    reader = cluster.group("reader", bytes=BYTES)[0]
    reader.do("replicate", version=1)
    for one in pair:
        one.do("unpublish")
        one.do("publish", version=2)
    moved = reader.do("update", version="latest", staged=True)
    given(moved)
    assert moved["staged"] == BYTES


def test_a_rollout_that_has_the_version_gives_it_alone(cluster):
    """The trainer's link has other work."""
    trainer = cluster.group("a-trainer", role="trainer")[0]
    trainer.do("publish", version=1)
    assert cluster.group("rollout")[0].do("replicate", version=1)["source"] == "a-trainer"
    moved = cluster.group("reader")[0].do("replicate", version=1)
    assert moved["right"] and (moved["source"], moved["helpers"]) == ("rollout", [])


def test_one_stripe_is_one_source():
    cluster = Cluster(reconnect=0.0, stripes=1)
    try:
        for name in ["first", "second"]:
            cluster.group(name, role="trainer")[0].do("publish", version=1)
        moved = cluster.group("reader")[0].do("replicate", version=1)
        assert moved["right"] and moved["helpers"] == []
    finally:
        cluster.close()
