"""Frames: a JSON header and numpy arrays, over a stream socket. No pickle.

A frame is two big-endian u32 (header bytes, body bytes), the header, the body. The header's
`arrays` gives name, dtype and shape of each array, whose bytes follow each other in the body.
Whatever is received is bounded and checked before memory is reserved for it.
"""

import json
import math
import socket
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_HEADER = 64 * 1024
"""Bytes: a header is a few numbers and names."""
MAX_BODY = 64 * 1024 * 1024
"""Bytes: a batch of samples is far below."""
DTYPES = ("int64", "int32", "float32")
"""What a sample is made of."""

Header = dict[str, Any]
Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Shape = tuple[int, ...]

_LENGTHS = struct.Struct("!II")


class WireError(Exception):
    """The peer sent something that is not a frame, or closed in the middle of one."""


def send(sock: socket.socket, header: Header, arrays: Arrays | None = None) -> None:
    """Sends one frame. The arrays' dtypes must be in `DTYPES`."""
    arrays = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    described = [[name, a.dtype.name, list(a.shape)] for name, a in arrays.items()]
    head = json.dumps(header | {"arrays": described}).encode()
    body = b"".join(a.tobytes() for a in arrays.values())
    sock.sendall(_LENGTHS.pack(len(head), len(body)) + head + body)


def receive(sock: socket.socket) -> tuple[Header, dict[str, Array]] | None:
    """Receives one frame; None if the peer closed between frames. Raises `WireError`."""
    lengths = _receive_up_to(sock, _LENGTHS.size)
    if not lengths:
        return None
    head_bytes, body_bytes = _LENGTHS.unpack(_whole(lengths, _LENGTHS.size))
    if head_bytes > MAX_HEADER or body_bytes > MAX_BODY:
        raise WireError(f"frame of {head_bytes} + {body_bytes} bytes is above the limits")
    try:
        header = json.loads(_whole(_receive_up_to(sock, head_bytes), head_bytes))
        described = [(str(n), str(d), tuple(map(int, s))) for n, d, s in header.pop("arrays")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"frame header is not understood: {error}") from None
    return header, _arrays(described, _whole(_receive_up_to(sock, body_bytes), body_bytes))


def _arrays(described: list[tuple[str, str, Shape]], body: bytes) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    at = 0
    for name, dtype, shape in described:
        if dtype not in DTYPES or min(shape, default=0) < 0:
            raise WireError(f"array {name!r} has dtype {dtype!r} and shape {shape}")
        count = math.prod(shape)
        if at + count * np.dtype(dtype).itemsize > len(body):
            raise WireError(f"array {name!r} of {shape} goes beyond the frame's {len(body)} bytes")
        arrays[name] = np.frombuffer(body, dtype, count, at).reshape(shape).copy()
        at += arrays[name].nbytes
    if at != len(body):
        raise WireError(f"frame has {len(body) - at} bytes that belong to no array")
    return arrays


def _receive_up_to(sock: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = sock.recv(min(count - len(received), 1 << 20))
        if not part:
            break
        received += part
    return bytes(received)


def _whole(received: bytes, count: int) -> bytes:
    if len(received) < count:
        raise WireError(f"connection closed after {len(received)} of {count} bytes")
    return received
