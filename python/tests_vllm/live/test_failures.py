"""An engine is held, killed, or made to fail, and its trainer killed, in each state of an update: the engine is
wholly old, wholly new, or does not serve."""

import os
import signal
import urllib.error

import pytest

from .job import Job

pytestmark = pytest.mark.full

FETCHING = ["before-fetch", "after-fetch"]
INSTALLING = ["before-install", "within-install", "after-install"]


@pytest.fixture
def trainer(job: Job):
    """One whose engine serves weights 2."""
    started = job.serving()
    yield started
    started.kill()


@pytest.mark.parametrize("place", FETCHING)
def test_a_fetch_that_fails_leaves_the_old_version(job: Job, trainer, place: str) -> None:
    job.stops.fail(place)
    said = trainer.update(3)
    assert said.startswith("failed") and place in said
    assert job.serves(2)
    job.stops.clear()
    assert trainer.update(3).startswith("sent")
    assert job.serves(3)


@pytest.mark.parametrize("place", INSTALLING)
def test_an_install_that_fails_is_tried_again(job: Job, trainer, place: str) -> None:
    job.stops.fail_once(place)
    assert trainer.update(3).startswith("sent")
    assert job.serves(3)


def test_an_engine_that_cannot_install_does_not_serve(job: Job, trainer) -> None:
    job.stops.fail("within-install")
    said = trainer.update(3)
    assert said.startswith("failed") and "stay paused" in said
    (state,) = job.engine.client().states()
    assert state.incomplete is not None
    assert job.engine.client().paused()
    job.stops.clear()
    # The next update ends that.
    assert trainer.update(3).startswith("sent")
    assert job.serves(3)


def test_an_incomplete_engine_that_is_resumed_by_hand_generates_nothing(job: Job, trainer) -> None:
    job.stops.fail("within-install")
    assert trainer.update(3).startswith("failed")
    job.engine.client().resume()
    with pytest.raises((urllib.error.URLError, OSError)):
        job.engine.generate()


@pytest.mark.parametrize("place", [*FETCHING, *INSTALLING])
def test_a_worker_that_is_killed_ends_its_engine(job: Job, trainer, place: str) -> None:
    job.stops.hold(place)
    trainer.send(3)
    os.kill(job.stops.reached(place), signal.SIGKILL)
    assert trainer.hears().startswith("failed")
    with pytest.raises((urllib.error.URLError, OSError)):
        job.engine.generate()


@pytest.mark.parametrize("place", [*FETCHING, *INSTALLING])
def test_a_worker_that_is_stopped_for_a_while_goes_on(job: Job, trainer, place: str) -> None:
    job.stops.hold(place)
    trainer.send(3)
    worker = job.stops.reached(place)
    os.kill(worker, signal.SIGSTOP)
    job.stops.clear()
    os.kill(worker, signal.SIGCONT)
    assert trainer.hears().startswith("sent")
    assert job.serves(3)


@pytest.mark.parametrize("place", [*FETCHING, *INSTALLING])
def test_a_trainer_that_is_killed_is_replaced(job: Job, trainer, place: str) -> None:
    job.stops.hold(place)
    trainer.send(3)
    job.stops.reached(place)
    trainer.kill()
    job.stops.clear()
    if place in FETCHING:
        assert job.serves(2)
    else:
        assert job.engine.client().paused(), "nobody serves what nobody has stamped"
    assert job.trainer().update(3).startswith("sent")
    assert job.serves(3)
