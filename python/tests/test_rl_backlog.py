"""Which samples are wanted, and which are dropped: decisions without processes."""

import numpy as np
import pytest

pytest.importorskip("torch")

from weightcast.examples.rl.settings import LoopSettings
from weightcast.examples.rl_loop.backlog import Backlog, Batch


def batch(version: int, digest: str = "") -> Batch:
    tokens = np.zeros((4, 3), np.int64)
    return Batch(version, tokens, tokens, np.zeros((4, 3), np.float32), digest)


def told(backlog: Backlog, version: int) -> None:
    """Trainers publish a version whose digest is its number."""
    backlog.publish(version, str(version))


def tickets(backlog: Backlog) -> list[int]:
    """All tickets that are to be had, each with the version that it wants."""
    found = []
    while backlog.has_room:
        found.append(backlog.take_ticket())
    return found


def test_as_much_is_begun_as_will_be_fresh_when_its_turn_comes():
    backlog = Backlog(6, per_version=2)  # two versions behind at most
    told(backlog, 10)
    assert tickets(backlog) == [8, 8, 9, 9, 10, 10]


def test_what_trainers_take_makes_no_room_before_the_next_version():
    backlog = Backlog(4, per_version=2)
    told(backlog, 3)
    for _ in tickets(backlog):
        backlog.put(batch(3, "3"))
    assert backlog.get() and backlog.get() and not backlog.has_room
    told(backlog, 4)
    assert tickets(backlog) == [4, 4]


def test_without_a_number_per_version_what_is_taken_makes_room_at_once():
    backlog = Backlog(2)
    assert tickets(backlog) == [0, 0]
    backlog.put(batch(0))
    assert backlog.get() and tickets(backlog) == [0]


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("trainers", [1, 2])
def test_swift_rollouts_never_sample_in_vain(staleness, trainers):
    settings = LoopSettings(trainers=trainers, max_staleness=staleness)
    backlog, seen = settings.backlog, set()
    for version in range(20):
        told(backlog, version)
        backlog.require(version - staleness)
        for floor in tickets(backlog):
            backlog.put(batch(floor, str(floor)))  # as old as may be
        for _ in range(trainers):
            taken = backlog.get()
            assert taken is not None
            seen.add(version - taken.version)
    assert backlog.dropped_samples == 0 and max(seen) == staleness


def test_nothing_is_begun_that_nobody_will_learn_from():
    backlog = Backlog(6, per_version=2, last=11)
    told(backlog, 10)
    assert tickets(backlog) == [8, 8, 9, 9]
    backlog.waiting = 1
    assert backlog.has_room, "a trainer waits: the last version too has rollouts that stand still"


def test_rollouts_that_stand_still_keep_nobody_from_sampling():
    backlog = Backlog(1, per_version=1)
    told(backlog, 0)
    assert tickets(backlog) == [0]
    backlog.waiting = 1
    assert backlog.has_room, "the only ticket is with a rollout that stands still"
    assert backlog.take_ticket() == 0, "nothing newer can be had"
    backlog.put(batch(0, "0"))
    assert not backlog.has_room


def test_what_is_too_old_is_dropped_when_that_is_known():
    backlog = Backlog(3)
    for version in (1, 2):
        backlog.take_ticket()
        backlog.put(batch(version))
    backlog.require(2)
    assert [each.version for each in backlog.batches] == [2] and backlog.dropped_samples == 4
    backlog.take_ticket()
    backlog.put(batch(1))
    assert backlog.dropped_samples == 8, "a late one is dropped when it arrives"
    backlog.require(0)
    backlog.take_ticket()
    backlog.put(batch(1))
    assert backlog.dropped_samples == 12, "a trainer that lags behind brings nothing back"
    assert backlog.get().version == 2 and backlog.get() is None


def test_samples_of_unknown_weights_are_counted_apart():
    backlog = Backlog(4)
    told(backlog, 5)
    for each in (batch(5, "6"), batch(4, "5"), batch(5), batch(5, "5")):
        backlog.take_ticket()
        backlog.put(each)
    assert backlog.foreign_samples == 12 and backlog.dropped == 0 and backlog.tickets == 0
    assert backlog.get().digest == "5"
