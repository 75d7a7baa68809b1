"""How many rollouts there should be, and how long a worker has to leave."""

import pytest

import weightcast as wc
from weightcast.adapters.ray.notices import left_by
from weightcast.adapters.ray.scaling import Scale
from weightcast.examples import ray_autoscale

SCALE = Scale(least=1, most=4, per_rollout=10)


@pytest.mark.parametrize(
    ("rollouts", "waiting", "missed", "wanted"),
    [
        (1, 10, 0, 1),
        (1, 11, 0, 2),
        (1, 1000, 0, 4),  # the most
        (1, 30, 1, 1),  # one still waits for its weights
        (3, 20, 1, 2),  # which keeps nobody
        (4, 10, 0, 3),  # one at a time
        (2, 0, 0, 1),
        (1, 0, 0, 1),  # the least
        (0, 0, 0, 1),
        (0, 30, 2, 1),
        (6, 1000, 0, 5),  # more than the most
    ],
)
def test_rollouts_follow_what_waits(rollouts: int, waiting: int, missed: int, wanted: int):
    assert SCALE.wanted(rollouts, waiting, missed) == wanted


def test_bounds_that_make_no_sense_are_refused():
    for least, most, per_rollout in [(0, 1, 1), (2, 1, 1), (1, 1, 0)]:
        with pytest.raises(wc.Misuse, match="0 < least <= most"):
            Scale(least, most, per_rollout)


def test_a_worker_leaves_before_its_node_goes():
    assert left_by(0, 25.0) == 25.0  # nobody knows when
    assert left_by(110_000, 25.0, now_ms=100_000) == 8.0
    assert left_by(200_000, 25.0, now_ms=100_000) == 25.0
    assert left_by(100_500, 25.0, now_ms=100_000) == left_by(99_000, 25.0, now_ms=100_000) == 0.0


@pytest.mark.full
@pytest.mark.usefixtures("one_node")
def test_the_example_follows_its_work():
    scale = Scale(least=1, most=3, per_rollout=ray_autoscale.SAMPLES)
    there = ray_autoscale.loop([1, 3, 3, 3, 1, 1, 1], scale)
    # One at a time is given up.
    assert there == [1, 3, 3, 3, 2, 1, 1]
