"""A forked child has a copy of the handle: it can do nothing with it, and nothing to its parent."""

import multiprocessing
import os
import time
import warnings

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

COUNT = 1 << 12
#: Seconds below anything that a handle waits for when it is closed.
AT_ONCE = 2.0


@pytest.fixture(autouse=True)
def forks():
    """Newer Pythons warn of forks beside threads: that is what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def in_child(act) -> None:
    """Runs `act` in a fork; it must return there."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + SOON
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


@pytest.fixture
def trainer(group):
    weight = np.arange(COUNT, dtype="u4")
    made = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    made[0].publish(1, deadline=SOON, seal=True)
    return made[0], weight


def check_parent(group, trainer) -> None:
    """The parent still publishes, and others read from it."""
    handle, weight = trainer
    handle.unpublish(deadline=SOON)
    weight += 1
    handle.publish(2, deadline=SOON, seal=True)
    copy = np.zeros_like(weight)
    rollout = group(f"rollout-{time.monotonic_ns()}", [wc.Layout().add(copy, "w")])
    assert rollout[0].replicate(2, deadline=SOON).source == "trainer"
    assert np.array_equal(copy, weight)


CALLS = {
    "register": lambda h: h.register(wc.Layout().add(np.zeros(4, "f4"), "w")),
    "unregister": lambda h: h.unregister(),
    "publish": lambda h: h.publish(2),
    "wait_sealed": lambda h: h.wait_sealed(),
    "unpublish": lambda h: h.unpublish(),
    "replicate": lambda h: h.replicate(1),
    "update": lambda h: h.update(),
    "list": lambda h: h.list(),
    "wait": lambda h: h.wait(lambda versions: True),
    "version": lambda h: h.version,
    "epoch": lambda h: h.epoch,
    "progress": lambda h: h.progress,
    "progress_total": lambda h: h.progress_total,
}


def test_no_call_works_in_a_child(group, trainer):
    parent = os.getpid()

    def act() -> None:
        for call in CALLS.values():
            with pytest.raises(wc.Misuse, match=f"process {parent}; open one in this"):
                call(trainer[0])
        assert "another process" in repr(trainer[0])

    in_child(act)
    check_parent(group, trainer)


def test_closing_in_a_child_does_nothing(group, trainer):
    def act() -> None:
        before = time.monotonic()
        trainer[0].close()
        trainer[0].close()
        assert time.monotonic() - before < AT_ONCE

    in_child(act)
    check_parent(group, trainer)


def test_dropping_in_a_child_does_nothing(group, server):
    weight = np.arange(COUNT, dtype="u4")
    me = wc.Replica("trainer")
    held = [wc.open("policy", me, role="trainer", server=server.address)]
    held[0].register(wc.Layout().add(weight, "w"), deadline=SOON)
    held[0].publish(1, deadline=SOON, seal=True)

    def act() -> None:
        before = time.monotonic()
        held.clear()
        assert time.monotonic() - before < AT_ONCE

    in_child(act)
    check_parent(group, (held[0], weight))
    held[0].close(deadline=SOON)


def test_a_with_block_left_in_a_child_does_nothing(group, trainer):
    def act() -> None:
        with pytest.raises(ZeroDivisionError), trainer[0]:
            raise ZeroDivisionError

    in_child(act)
    check_parent(group, trainer)


def test_a_server_dropped_in_a_child_goes_on(group, server, trainer):
    in_child(server.close)
    check_parent(group, trainer)


def test_a_handle_closed_before_the_fork(server):
    handle = wc.open("policy", wc.Replica("one"), server=server.address)
    handle.close(deadline=SOON)
    held = [handle]
    del handle
    in_child(held.clear)


def test_a_child_opens_a_handle_of_its_own(group, server, trainer):
    def act() -> None:
        copy = np.zeros(COUNT, "u4")
        with wc.open("policy", wc.Replica("child"), server=server.address) as handle:
            handle.register(wc.Layout().add(copy, "w"), deadline=SOON)
            assert handle.replicate(1, deadline=SOON).source == "trainer"
        assert np.array_equal(copy, np.arange(COUNT))

    in_child(act)
    check_parent(group, trainer)


def use(item: int) -> int:
    """What a data loader's worker does while its trainer's handle lies around."""
    try:
        HELD[0].publish(item)
    except wc.Misuse:
        return item
    raise AssertionError("a worker has published")


HELD: list[wc.Handle] = []


def test_a_pool_of_forked_workers(group, trainer):
    HELD.append(trainer[0])
    try:
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(use, range(12)) == list(range(12))
            check_parent(group, trainer)  # while they are alive
        check_parent_again = trainer[0].list(deadline=SOON)
    finally:
        HELD.clear()
    assert 2 in check_parent_again
