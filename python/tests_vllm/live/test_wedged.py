"""An engine hangs in a step of an update past the step's deadline, or is slow and keeps to it. The update ends while the
engine still hangs; what the engine then is, and serves, is what the pages say."""

import time

import pytest

from .job import Job
from .rig import Trainer
from .server import SOON

pytestmark = pytest.mark.full

#: The engine's own thread goes on there.
BYTES = ["before-bytes", "after-bytes"]
#: Where an engine is before, and after, the server has noted that the version counts.
BEFORE = ["before-fetch", "after-fetch", *BYTES]
AFTER = ["before-install", "within-install", "after-install"]
#: Of requests to the engine: an update that ended with them would not end while a test waits.
HOURS = 36000.0


@pytest.fixture(scope="module")
def impatient(job: Job):
    started = job.trainer(deadline=10.0, timeout=HOURS)
    yield started
    started.kill()


@pytest.fixture
def trainer(job: Job, impatient: Trainer):
    """One that does not wait for long, and whose engine serves weights 2."""
    job.stops.clear()
    assert impatient.update(2).startswith("sent")
    assert job.serves(2)
    return impatient


@pytest.mark.parametrize("place", BEFORE)
def test_an_engine_that_hangs_before_the_verdict_stays_old(job: Job, trainer: Trainer, place: str) -> None:
    job.stops.hold(place)
    trainer.send(3)
    job.stops.reached(place)
    assert trainer.hears().startswith("failed")
    if place in BYTES:
        assert job.serves(2), "bytes that do not come hold nobody up"
    else:
        assert trainer.update(3).startswith("failed"), "it still hangs"
    job.stops.clear()
    assert job.serves(2)
    assert trainer.update(3).startswith("sent")
    assert job.serves(3)


@pytest.mark.parametrize("place", AFTER)
def test_an_engine_that_hangs_after_the_verdict_does_not_serve(job: Job, trainer: Trainer, place: str) -> None:
    job.stops.hold(place)
    trainer.send(3)
    job.stops.reached(place)
    assert trainer.hears().startswith("failed")
    assert trainer.update(3).startswith("failed"), "it still hangs"
    job.stops.clear()
    assert job.engine.client().paused(), "nobody has resumed it"
    assert trainer.update(3).startswith("sent")
    assert job.serves(3)


def test_a_slow_engine_is_waited_for(job: Job) -> None:
    trainer = job.serving(deadline=SOON)
    for place in (*BEFORE, *AFTER):
        job.stops.hold(place)
    trainer.send(3)
    for place in (*BEFORE, *AFTER):
        job.stops.reached(place)
        if place in BYTES:
            assert job.serves(2), "it generates while bytes come"
        else:
            await_look(job)
        job.stops.release(place)
    said = trainer.hears()
    assert said.startswith("sent")
    tokens, spans = job.engine.generate()
    assert tokens == job.fresh.says(3)
    assert spans == [{"version": said.split()[1], "start": 0, "end": len(tokens)}]
    trainer.kill()


def await_look(job: Job) -> None:
    """Waits until the trainer has waited so long for an answer that it looks whether the server is well."""
    before, end = health(job), time.monotonic() + SOON
    while health(job) == before:
        assert time.monotonic() < end, "the trainer does not look"
        time.sleep(0.01)


def health(job: Job) -> int:
    return job.engine.log.read_text().count('"GET /health')
