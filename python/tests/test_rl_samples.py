"""Samples travel whole, in order, bounded, and only between those who know the token."""

import socket
import threading

import numpy as np
import pytest

pytest.importorskip("torch")

from weightcast.examples.rl_loop import wire
from weightcast.examples.rl_loop.backlog import Backlog, Batch
from weightcast.examples.rl_loop.samples import SampleHub, Samples

TOKEN = "token"


@pytest.fixture
def reports():
    return []


@pytest.fixture
def hub(reports):
    with SampleHub(Backlog(2), TOKEN, lambda *report: reports.append(report)) as hub:
        yield hub


def connect(hub, name="test", token=TOKEN):
    return Samples(hub.port, token, name, timeout=20)


def batch(version):
    tokens = np.arange(6, dtype=np.int64).reshape(2, 3) + version
    return Batch(version, tokens, tokens[:, :2], np.full((2, 2), -0.5, np.float32))


def in_thread(call):
    """Runs `call` in a thread; the returned function waits for its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()))
    thread.start()

    def wait():
        thread.join(timeout=20)
        return result[0]

    return wait


def test_a_batch_arrives_as_it_was_sent(hub):
    rollout, trainer = connect(hub), connect(hub)
    assert rollout.ticket() is not None
    rollout.put(batch(3))
    got = trainer.get(min_version=3)
    assert got.version == 3
    for got_array, sent_array in zip(got[1:4], batch(3)[1:4], strict=True):
        assert got_array.dtype == sent_array.dtype
        np.testing.assert_array_equal(got_array, sent_array)


def test_old_batches_are_dropped_and_their_tickets_returned(hub):
    rollout, trainer = connect(hub), connect(hub)
    for version in (1, 2):
        assert rollout.ticket() is not None
        rollout.put(batch(version))
    wait = in_thread(lambda: trainer.get(min_version=3))
    assert rollout.ticket() is not None
    rollout.put(batch(3))
    assert wait().version == 3
    assert hub.backlog.dropped == 2 and hub.backlog.dropped_samples == 4


def test_no_more_tickets_than_room(hub):
    rollout, trainer = connect(hub), connect(hub)
    assert rollout.ticket() == rollout.ticket() == 0
    rollout.put(batch(0))
    third = in_thread(rollout.ticket)
    assert not hub.backlog.has_room
    trainer.get(min_version=0)
    assert third() is not None


def test_the_ticket_of_a_rollout_that_is_gone_is_returned(hub):
    gone, stays = connect(hub), connect(hub)
    assert gone.ticket() == stays.ticket() == 0
    third = in_thread(connect(hub).ticket)
    gone.close()
    assert third() is not None


def test_a_rollout_that_leaves_returns_no_ticket_that_it_has_used(hub, monkeypatch):
    returned, told = [], threading.Event()
    monkeypatch.setattr(hub, "give_back", lambda tickets: (returned.append(tickets), told.set()))
    rollout = connect(hub)
    for version in range(2):
        assert rollout.ticket() == 0
        rollout.put(batch(version))
        hub.backlog.get()
    rollout.close()
    assert told.wait(20) and returned == [0] and hub.backlog.tickets == 0


def test_batches_of_other_weights_than_those_published_are_nobodys(hub):
    rollout, trainer = connect(hub), connect(hub)
    trainer.publish(3, "a1")
    for version, digest in ((3, "b2"), (2, "a1"), (3, "a1")):
        assert rollout.ticket() is not None
        rollout.put(batch(version)._replace(digest=digest))
    got = trainer.get(min_version=0)
    assert (got.version, got.digest) == (3, "a1")
    assert hub.backlog.foreign_samples == 4 and hub.backlog.dropped == 0


@pytest.mark.parametrize("patience", [0.0, 600.0])
def test_others_take_the_place_of_a_slow_rollout_once_a_trainer_has_waited(patience):
    with SampleHub(Backlog(1, per_version=1), TOKEN, lambda *_: None, patience) as hub:
        slow, other = connect(hub), connect(hub)
        assert slow.ticket() == 0
        wait = in_thread(lambda: connect(hub).get(min_version=0))
        if patience:
            slow.put(batch(0))
        else:
            assert other.ticket() == 0
            other.put(batch(0))
        assert wait().version == 0
        assert hub.backlog.waiting == 0


def test_finish_stops_those_who_wait(hub):
    rollout = connect(hub)
    assert rollout.ticket() == rollout.ticket() == 0
    third = in_thread(rollout.ticket)
    trainer = connect(hub)
    hub.finish()
    assert third() is None
    with pytest.raises(wire.WireError, match="no more samples"):
        trainer.get(min_version=0)


def test_reports_carry_the_name(hub, reports):
    connect(hub, "rollout-0/1").report(event="update", version=4)
    assert reports == [("rollout-0/1", {"event": "update", "version": 4})]


def test_a_wrong_token_is_refused(hub, reports):
    with pytest.raises((wire.WireError, ConnectionError)):
        connect(hub, token="guess").report(event="step")
    assert not reports


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        wire._LENGTHS.pack(5, 0) + b"[1,2]",
        wire._LENGTHS.pack(wire.MAX_HEADER + 1, 0),
        wire._LENGTHS.pack(2, wire.MAX_BODY + 1) + b"{}",
    ],
)
def test_garbage_harms_nobody(hub, garbage):
    with socket.create_connection(("127.0.0.1", hub.port), 20) as sock:
        sock.sendall(garbage)
        assert sock.recv(1) == b""
    assert connect(hub).ticket() == 0


@pytest.mark.parametrize(
    ("described", "body", "message"),
    [
        ([["x", "object", [1]]], b"", "dtype 'object'"),
        ([["x", "float32", [-1]]], b"", "shape"),
        ([["x", "int64", [10**9, 10**9]]], b"", "goes beyond"),
        ([], b"1234", "belong to no array"),
    ],
)
def test_frames_that_lie_are_refused(described, body, message):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        head = wire.json.dumps({"arrays": described}).encode()
        ours.sendall(wire._LENGTHS.pack(len(head), len(body)) + head + body)
        with pytest.raises(wire.WireError, match=message):
            wire.receive(theirs)


def test_a_frame_cut_short_is_an_error():
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(wire._LENGTHS.pack(100, 0) + b"{")
        with pytest.raises(wire.WireError, match="closed after 1 of 100"):
            wire.receive(theirs)
