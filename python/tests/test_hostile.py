"""Peers that mean harm, on both ports: they are dropped, and nobody else notices."""

import contextlib
import socket
import struct
import threading

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON
from .programs.driver import Proxy

WEIGHT = np.arange(1 << 20, dtype="u4")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
HELLO, PROOF, VERDICT = 40, 72, 40
#: Seconds that a peer has for its handshake, on both ports, and as many again for a busy machine.
HANDSHAKE = 5.0
PATIENCE = 2 * HANDSHAKE


def noise(seed: int, count: int) -> bytes:
    return np.random.default_rng(seed).bytes(count)


def frame(kind: int, body: int, payload: bytes = b"") -> bytes:
    """A frame of the data port that says it has `body` bytes."""
    return b"WCD1" + bytes([kind, 0, 0, 0]) + struct.pack("<Q", body) + payload


READ, DATA = 3, 131
CONTROL_GARBAGE = {
    "noise": noise(1, 1 << 16),
    "one byte": b"\xff",
    "http/1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "half a preface": PREFACE[:12] + noise(2, 100),
    "noise after the preface": PREFACE + noise(3, 1 << 16),
    "noise after the settings": PREFACE + SETTINGS + noise(4, 1 << 16),
    "oversize frame": PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\1" + noise(5, 1 << 20),
    "endless headers": PREFACE + SETTINGS + b"\0\x40\0\1\0\0\0\0\1" + noise(6, 1 << 14),
}
DATA_GARBAGE = {
    "noise": noise(7, 1 << 16),
    "half a handshake": b"wcdata2\n" + noise(8, 20),
    "false proof": b"wcdata2\n" + noise(9, PROOF - 8),
    "false proof and a request": b"wcdata2\n" + noise(10, PROOF - 8) + frame(READ, 1 << 40),
    "frame without a handshake": frame(READ, 1 << 40, noise(11, 1 << 16)),
    "http/2": PREFACE + SETTINGS + noise(12, 100),
}


@pytest.fixture
def trainer(group):
    made = group("trainer", [wc.Layout().add(WEIGHT.copy(), "w")], role="trainer")
    made[0].publish(1, deadline=SOON, seal=True)
    return made


@pytest.fixture
def transfers(group, trainer):
    """`transfers()` moves the version to an old and to a new rollout."""
    copies = [np.zeros_like(WEIGHT)]
    old = group("old", [wc.Layout().add(copies[0], "w")], way="tcp")

    def move() -> None:
        copies.append(np.zeros_like(WEIGHT))
        new = group(f"new-{len(copies)}", [wc.Layout().add(copies[-1], "w")], way="tcp")
        for rollout, copy in ((old, copies[0]), (new, copies[-1])):
            copy[...] = 0
            assert rollout[0].replicate(1, deadline=SOON).way == "tcp"
            assert np.array_equal(copy, WEIGHT)
            rollout[0].unpublish(deadline=SOON)
        new[0].close(deadline=SOON)

    return move


def connect(port: str, server: wc.Server) -> socket.socket:
    """A connection to the control port, or to the trainer's data port."""
    address = server.address.removeprefix("http://")
    if port == "data":
        replicas = [r for m in wc.status(server.address)["models"] for r in m["replicas"]]
        (trainer,) = [replica for replica in replicas if replica["name"] == "trainer"]
        address = trainer["shards"][0]["data_address"]
    host, number = address.rsplit(":", 1)
    return socket.create_connection((host, int(number)), timeout=PATIENCE)


def is_closed(peer: socket.socket) -> bool:
    """Reads to the end: true if the other side hung up before the socket's timeout."""
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


GARBAGE = [
    pytest.param(port, sent, id=f"{port}: {name}")
    for port, cases in (("control", CONTROL_GARBAGE), ("data", DATA_GARBAGE))
    for name, sent in cases.items()
]


@pytest.mark.parametrize(("port", "sent"), GARBAGE)
def test_garbage_harms_nobody(server, transfers, port, sent):
    with connect(port, server) as peer:
        with contextlib.suppress(OSError):
            peer.sendall(sent)
        transfers()
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        assert is_closed(peer)
    transfers()


@pytest.mark.parametrize("port", ["control", "data"])
def test_garbage_from_many_peers(server, transfers, port):
    for seed in range(100):
        with connect(port, server) as peer, contextlib.suppress(OSError):
            start = PREFACE if port == "control" else b"wcdata2\n"
            size = int(np.random.default_rng(seed).integers(1, 1 << 14))
            peer.sendall(start[: seed % (len(start) + 1)] + noise(seed, size))
    transfers()


def drip(peer: socket.socket, content: bytes, stop: threading.Event) -> None:
    with contextlib.suppress(OSError):
        for at in range(len(content)):
            peer.sendall(content[at : at + 1])
            if stop.wait(1.0):
                return


def test_one_byte_a_second(server, transfers):
    """On both ports at once: dropped when the handshake's time is over, others go on meanwhile."""
    stop = threading.Event()
    peers = [connect("control", server), connect("data", server)]
    dripping = [
        threading.Thread(target=drip, args=(peer, content, stop))
        for peer, content in zip(peers, (PREFACE, b"wcdata2\n" + bytes(PROOF)), strict=True)
    ]
    for thread in dripping:
        thread.start()
    try:
        transfers()
        for peer in peers:
            assert is_closed(peer)
    finally:
        stop.set()
        for thread in dripping:
            thread.join()
        for peer in peers:
            peer.close()
    transfers()


IDLE = {
    "control: silent": ("control", b""),
    "control: http/2": ("control", PREFACE + SETTINGS),
    "data: silent": ("data", b""),
}


@pytest.mark.parametrize("name", IDLE)
def test_idle_connections(server, transfers, name):
    """More than a port keeps of those that have not shown the token; all end by themselves."""
    port, sent = IDLE[name]
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connect(port, server)) for _ in range(300)]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.sendall(sent)
        transfers()
        assert all(is_closed(peer) for peer in peers)
    transfers()


class Tamperer(Proxy):
    """Sits between reader and source, and speaks for one of them once both have shaken hands."""

    def __init__(self, to_source=None, to_reader=None):
        self.to_source, self.to_reader = to_source, to_reader
        super().__init__()

    def request(self, at, data):
        return self.changed(data, PROOF - at, self.to_source)

    def answer(self, at, data):
        return self.changed(data, HELLO + VERDICT - at, self.to_reader)

    @staticmethod
    def changed(data, left, change):
        if change is None or left >= len(data):
            return data
        return data[: max(0, left)] + change(data[max(0, left) :])


def flip_a_bit_of_the_payload(data: bytes) -> bytes:
    """Where two neighbours of `WEIGHT` pass: headers are left alone."""
    for at in range(len(data) // 2, len(data) - 8):
        one, two = struct.unpack_from("<II", data, at)
        if two == one + 1:
            return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
    return data


TAMPERING = {
    "noise to the source": {"to_source": lambda data: noise(20, 1 << 12)},
    "oversize request": {"to_source": lambda data: frame(READ, 1 << 40)},
    "unknown kind": {"to_source": lambda data: frame(77, 0)},
    "extents of nowhere": {"to_source": lambda data: frame(READ, 4_000, noise(21, 4_000))},
    "half a request": {"to_source": lambda data: frame(READ, 4_000)},
    "noise to the reader": {"to_reader": lambda data: noise(22, 1 << 12)},
    "oversize answer": {"to_reader": lambda data: frame(DATA, 1 << 60)},
    "answer to another request": {"to_reader": lambda data: frame(DATA, 1_000, noise(23, 1_000))},
    "one bit": {"to_reader": flip_a_bit_of_the_payload},
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_after_the_handshake(group, trainer, transfers, name):
    proxy = Tamperer(**TAMPERING[name])
    try:
        layout = wc.Layout().add(WEIGHT.copy(), "w")
        behind = group("behind", [layout], model="other", role="trainer", **proxy.options)
        behind[0].publish(1, deadline=SOON, seal=True)
        copy = np.zeros_like(WEIGHT)
        rollout = group("rollout", [wc.Layout().add(copy, "w")], model="other", way="tcp")
        with pytest.raises(wc.DigestMismatch if name == "one bit" else wc.SourceLost):
            rollout[0].replicate(1, deadline=SOON)
        assert rollout[0].version is None
        transfers()
        behind[0].unpublish(deadline=SOON)
    finally:
        proxy.close()
