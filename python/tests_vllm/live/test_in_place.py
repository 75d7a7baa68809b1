"""Bytes land in the parameters of an engine that stands still (`landing="in_place"`), and somebody dies in the middle: the
engine serves nothing until an update succeeds."""

import os
import signal

import pytest

from .job import Fresh, Job
from .rig import Trainer

pytestmark = pytest.mark.full

#: The engine has given its old weights up, and none of the new ones' bytes, or all, have come.
MIDDLE = ["before-bytes", "after-bytes"]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory):
    fresh = Fresh(tmp_path_factory.mktemp("fresh"), unpacked=True)
    made = Job(tmp_path_factory.mktemp("in-place"), fresh, unpacked=True)
    yield made
    made.end()
    fresh.end()


@pytest.fixture
def trainer(job: Job):
    """One whose engine serves weights 2."""
    started = job.serving(landing="in_place")
    yield started
    started.kill()


@pytest.mark.parametrize("place", MIDDLE)
def test_a_trainer_that_is_killed_leaves_an_engine_that_serves_nothing(job: Job, trainer: Trainer, place: str) -> None:
    job.stops.hold(place)
    trainer.send(3)
    job.stops.reached(place)
    trainer.kill()
    job.stops.clear()
    # Its answer comes after that of the fetch.
    (state,) = job.engine.client().states()
    assert "was being fetched into the parameters" in state.incomplete
    assert job.engine.client().paused()
    # A successor has nothing to go back to, and brings all of a version.
    successor = job.trainer(landing="in_place")
    assert job.engine.client().paused()
    assert successor.update(3).startswith("sent")
    assert job.serves(3)
    successor.kill()


def test_an_engine_that_is_resumed_by_hand_ends_before_it_says_anything(job: Job, trainer: Trainer) -> None:
    job.stops.hold("after-bytes")
    trainer.send(3)
    job.stops.reached("after-bytes")
    trainer.kill()
    job.stops.clear()
    job.engine.client().resume()
    with pytest.raises(OSError):
        job.engine.generate()


def test_a_worker_that_is_killed_ends_its_engine(job: Job, trainer: Trainer) -> None:
    job.stops.hold("before-bytes")
    trainer.send(3)
    os.kill(job.stops.reached("before-bytes"), signal.SIGKILL)
    assert trainer.hears().startswith("failed")
    with pytest.raises(OSError):
        job.engine.generate()
