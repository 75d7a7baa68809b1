"""`top` and `status --watch` in a terminal emulator, while 16 rollouts read and one of them is killed."""

import re

import pytest

from .programs.driver import Cluster
from .programs.terminal import Terminal

#: So many that no socket's buffers hold them.
BYTES = 48 << 20
#: What the trainer's gate lets through: every rollout is in the middle of its read.
SOME = 8 << 20
ROLLOUTS = 16


@pytest.fixture(scope="module")
def fanout():
    """A trainer behind a gate, and rollouts that have read all that the gate lets through."""
    running = Cluster(lease=2.0)
    try:
        [trainer] = running.group("trainer", role="trainer", bytes=BYTES, gates=[running.gate()])
        trainer.do("publish", version=1)
        begun = [running.begin(f"rollout-{n:02}", bytes=BYTES) for n in range(ROLLOUTS)]
        rollouts = [running.ready(workers)[0] for workers in begun]
        running.hold_after(SOME)
        for rollout in rollouts:
            rollout.start("replicate", version="latest")
        running.wait_held()
        for rollout in rollouts:
            rollout.moving()
        yield running, rollouts
    finally:
        running.close()


@pytest.fixture
def terminals():
    opened = []

    def terminal(*arguments, **size):
        opened.append(Terminal(*arguments, **size))
        return opened[-1]

    yield terminal
    for each in opened:
        each.close()


def rows(lines, pattern):
    return [line for line in lines if re.search(pattern, line)]


def test_a_fanout_with_a_killed_relay(fanout, terminals):
    running, rollouts = fanout
    address = running.server.address
    top = terminals("top", "--server", address, "--interval", "0.2")
    watch = terminals("status", "--server", address, "--watch", "0.2", columns=160, lines=120)

    bar = r"^  rollout-\d+ +rollout  reading  1/1 +-> 1 +[#.]{20} +\d+ %"
    below = r"^[ |`]+- ?rollout-\d+ +\d+ %"
    # A screen is drawn in pieces: its last line comes last.
    lines = top.wait_for(
        lambda seen: len(rows(seen, bar)) == ROLLOUTS == len(rows(seen, below)) and rows(seen, "q quit")
    )
    assert lines[0].startswith(f"weightcast top  {address}") and "17 sessions" in lines[0]
    assert rows(lines, r"^-- 17 replicas, 16 of them reading -")
    assert rows(lines, r"^  1 +held by 1 +trainer$")
    assert rows(lines, r"^  trainer +trainer +(published|sealed) +1/1 +1")
    table = watch.wait_for(lambda seen: len(rows(seen, r"^  rollout-\d+ has .* of version 1")) == ROLLOUTS)
    assert len(rows(table, r"^  replica rollout-\d+ +rollout +reading ")) == ROLLOUTS, "\n".join(table)
    assert len(rows(table, r"^  rollout-\d+ reads version 1 from ")) == ROLLOUTS, "\n".join(table)

    relay = next(name for name in (r.name for r in rollouts) if running.readers(name))
    killed = next(rollout for rollout in rollouts if rollout.name == relay)
    killed.kill()
    gone = rf"replica {relay} of \S+ is gone"
    lines = top.wait_for(lambda seen: rows(seen, gone) and rows(seen, "^-- 16 replicas, "))
    assert not rows(lines, rf"^  {relay} +rollout"), "\n".join(lines)
    watch.wait_for(lambda seen: rows(seen, "rollout-") and not rows(seen, rf"\b{relay} "))

    running.open_gates()
    for rollout in rollouts:
        assert rollout is killed or rollout.value("replicate")["right"]
    held = r"^  (rollout-\d+ +rollout|trainer +trainer) +(sealed|published) +1/1 +1"
    lines = top.wait_for(lambda seen: len(rows(seen, held)) == ROLLOUTS)
    assert rows(lines, "^-- 16 replicas, 0 of them reading -") and rows(lines, r"^  1 +held by 16 "), "\n".join(lines)

    top.press("q")
    assert top.ended() == 0
    assert top.left(), "the screen before it is not back"
    watch.press("\x03")
    assert watch.ended() != 0


def test_a_server_that_is_gone_leaves_its_last_answer_on_the_screen(terminals):
    running = Cluster()
    try:
        running.group("rollout-0", bytes=1)
        top = terminals("top", "--server", running.server.address, "--interval", "0.2", columns=80, lines=24)
        top.wait_for(lambda seen: rows(seen, "rollout-0"))
        running.server.kill()
        lines = top.wait_for(lambda seen: rows(seen, "no answer|cannot be reached|does not answer|unreachable"))
        assert rows(lines, "rollout-0"), "\n".join(lines)
        top.press("\x03")
        assert top.ended() == 0
    finally:
        running.close()
