"""Loops of Transformers, Accelerate and Lightning, on one rank and several: engines have each step to the bit."""

import socket

import pytest

from tests.jobs import ranks

from .follow import follow
from .models import STEPS
from .programs import loops


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize(("loop", "world"), [(loop, world) for loop, (_, worlds) in loops.LOOPS.items() for world in worlds])
def test_engines_follow(group, server, tmp_path, loop, world):
    with ranks(loops, world, loop, server.address, str(tmp_path), str(free_port())):
        follow(group, tmp_path, loop, list(range(STEPS + 1)), loops.LOOPS[loop][1][world])
