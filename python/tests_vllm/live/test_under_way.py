"""A request is under way when its engine is updated: with `abort` it ends, with `wait` it is finished by the old weights,
with `keep` it goes on with the new ones. What it says is what engines say that loaded the checkpoints themselves."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from .job import PROMPT, Fresh, Job
from .rig import Trainer

pytestmark = pytest.mark.full

#: Tokens of the request in all, and those that it has when the engine is told to pause.
ALL, HAS = 40, 5


@pytest.fixture(scope="module")
def old(fresh: Fresh) -> list[int]:
    """What the old weights say."""
    return fresh.says(2, ALL)


@pytest.fixture(scope="module")
def new(fresh: Fresh, old: list[int]) -> list[int]:
    """What the new weights say after the beginning of that."""
    said = fresh.says(3, ALL - HAS, after(old))
    assert said != old[HAS:]
    return said


def after(old: list[int]) -> list[int]:
    return [*PROMPT, *old[:HAS]]


@pytest.fixture
def asked(job: Job):
    """Threads that ask."""
    with ThreadPoolExecutor() as threads:
        yield threads
        job.stops.clear()


class Midway:
    """A trainer waits for its engine to pause, and a request is under way there; steps are held until `go_on`."""

    def __init__(self, job: Job, asked: ThreadPoolExecutor, trainer: Trainer) -> None:
        job.ready()
        self.job, self.trainer = job, trainer
        said = trainer.update(2)
        assert said.startswith("sent ")
        #: The version of the old weights.
        self.former = said.removeprefix("sent ")
        job.stops.clear()
        job.stops.hold_steps(HAS)
        self.request = asked.submit(job.engine.answer, ALL)
        job.stops.reached("steps")
        self.trainer.send(3)
        job.stops.reached("pause")

    def go_on(self) -> None:
        self.job.stops.clear()

    def ended(self) -> tuple[list[int], list[dict], str]:
        """The request: its tokens, their versions, and why it ended."""
        (said,) = self.request.result()["choices"]
        return said["token_ids"], said["weight_versions"], said["finish_reason"]


@pytest.fixture(scope="module")
def patient(job: Job):
    """A trainer that waits for requests, yet not for long."""
    started = job.trainer(pause="wait", deadline=10.0, timeout=36000.0)
    yield started
    started.kill()


def test_with_wait_it_is_finished_by_the_old_weights(job: Job, asked, patient, old, new) -> None:
    midway = Midway(job, asked, patient)
    (state,) = job.engine.client().states()
    assert str(state.installed) == midway.former and not midway.request.done()
    midway.go_on()
    assert midway.trainer.hears().startswith("sent")
    assert midway.ended() == (old, [{"version": midway.former, "start": 0, "end": ALL}], "length")
    assert job.engine.generate(ALL - HAS, prompt=after(old))[0] == new


def test_with_wait_a_request_that_outlasts_the_deadline_ends_the_update(job: Job, asked, patient, old) -> None:
    midway = Midway(job, asked, patient)
    said = midway.trainer.hears()
    assert said.startswith("failed") and "requests that were under way" in said
    assert not midway.request.done()
    assert not job.engine.client().paused(), "it goes on with what it served"
    midway.go_on()
    assert midway.ended() == (old, [{"version": midway.former, "start": 0, "end": ALL}], "length")
    assert job.serves(2)
    assert midway.trainer.update(3).startswith("sent")
    assert job.serves(3)


def test_with_keep_it_goes_on_with_the_new_weights(job: Job, asked, old, new) -> None:
    midway = Midway(job, asked, job.trainer(pause="keep"))
    midway.go_on()
    version = midway.trainer.hears().removeprefix("sent ")
    spans = [{"version": midway.former, "start": 0, "end": HAS}, {"version": version, "start": HAS, "end": ALL}]
    assert midway.ended() == (old[:HAS] + new, spans, "length")
    midway.trainer.kill()


def test_with_abort_it_ends(job: Job, asked, old, new) -> None:
    midway = Midway(job, asked, job.trainer(pause="abort"))
    midway.go_on()
    assert midway.trainer.hears().startswith("sent")
    assert midway.ended() == (old[:HAS], [{"version": midway.former, "start": 0, "end": HAS}], "abort")
    assert job.engine.generate(ALL - HAS, prompt=after(old))[0] == new
    midway.trainer.kill()
