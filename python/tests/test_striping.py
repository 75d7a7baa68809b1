"""Several replicas that hold a version are one reader's sources at once, on real processes."""

import signal

import pytest

import weightcast as wc

from .programs.driver import Cluster, together

#: So many that no socket's buffers hold them.
BYTES = 96 << 20
#: What has passed of each source when a transfer is in its middle.
SOME = 8 << 20


@pytest.fixture
def cluster():
    running = Cluster(reconnect=0.0, stripes=2)
    yield running
    running.close()


@pytest.fixture
def pair(cluster):
    """Two replicas that hold version 1, each behind a gate."""
    first, second = (
        cluster.group(name, role=role, bytes=BYTES, gates=[cluster.gate()])[0]
        for name, role in [("first", "trainer"), ("second", "rollout")]
    )
    first.do("publish", version=1)
    assert second.do("replicate", version=1)["right"]
    for gate in cluster.gates:
        gate.passed = 0
    return first, second


def test_both_replicas_give_their_half(cluster, pair):
    moved = cluster.group("reader", bytes=BYTES)[0].do("replicate", version=1)
    assert moved["right"]
    assert (moved["source"], moved["helpers"]) == ("first", ["second"])
    for gate in cluster.gates:
        assert 0.45 * BYTES < gate.passed < 0.55 * BYTES


def test_a_reader_of_another_layout_draws_from_both(cluster, pair):
    for moved in together(cluster.group("reader", 3, bytes=BYTES), "replicate", version=1):
        assert moved["right"] and moved["helpers"] == ["second"]
    assert all(0.4 * BYTES < gate.passed < 0.6 * BYTES for gate in cluster.gates)


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_dies_in_the_middle_costs_its_ranges(cluster, pair, dies, number):
    cluster.hold_after(SOME)
    reader = cluster.group("reader", bytes=BYTES)[0]
    reader.start("replicate", version=1)
    cluster.wait_held()
    assert cluster.readers("first") == cluster.readers("second") == ["reader"]
    pair[dies].signal(number)
    cluster.open_gates()
    moved = reader.value("replicate")
    assert moved["right"], "not the version's bytes"
    assert (moved["source"], moved["helpers"]) == (pair[1 - dies].name, [])
    # What had come of both is not asked for again.
    assert cluster.gates[1 - dies].passed < BYTES


def test_a_staged_update_draws_from_both(cluster, pair):
    first, second = pair
    reader = cluster.group("reader", bytes=BYTES)[0]
    reader.do("replicate", version=1)
    first.do("unpublish")
    first.do("publish", version=2)
    assert second.do("update", version="latest")["right"]
    moved = reader.do("update", version="latest", staged=True)
    assert moved["right"] and moved["staged"] == BYTES and moved["helpers"] == ["second"]


def test_without_the_option_there_is_one_source():
    cluster = Cluster(reconnect=0.0)
    try:
        first = cluster.group("first", role="trainer")[0]
        first.do("publish", version=1)
        for name in ["second", "reader"]:
            moved = cluster.group(name)[0].do("replicate", version=1)
            assert moved["right"] and moved["helpers"] == []
        assert wc.status(cluster.server.address)["models"]
    finally:
        cluster.close()
