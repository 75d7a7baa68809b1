"""An engine does what it is told, and its answer is lost on the way to the trainer."""

import pytest

from .job import Fresh, Job
from .rig import Trainer
from .wire import Wire

pytestmark = pytest.mark.full

#: In requests whose answers are lost: orders to workers, and calls that the engine takes as a whole once a version counts.
ORDERS = [f'"step": "{step}"' for step in ("Negotiate", "Fetch", "Pause", "Begin", "Install", "Verify", "Resume")]
CALLS = ["weightcast_performed", "/reset_prefix_cache", "/update_weight_version", "/resume"]


class Wired(Job):
    """An engine behind a wire."""

    def start(self) -> None:
        super().start()
        self.wire = Wire(self.engine.url)

    def trainer(self, **said: str | float) -> Trainer:
        self.trainers += 1
        return self.rig.trainer(f"trainer-{self.trainers}", self.wire, **said)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, fresh: Fresh):
    made = Wired(tmp_path_factory.mktemp("lost"), fresh)
    yield made
    made.wire.kill()
    made.end()


@pytest.fixture
def trainer(job: Wired):
    job.wire.mend()
    started = job.trainer()
    yield started
    started.kill()


def test_an_answer_that_is_lost_is_asked_for_again(job: Wired, trainer: Trainer) -> None:
    for at, what in enumerate([*ORDERS, *CALLS]):
        weights = 2 + at % 2
        job.wire.lose(what)
        assert trainer.update(weights).startswith("sent"), what
        assert job.wire.lost == 1, what
        assert job.serves(weights), what
        assert not job.engine.client().paused()


def test_an_engine_that_nobody_knows_to_be_paused_goes_on_with_the_old_version(job: Wired, trainer: Trainer) -> None:
    assert trainer.update(2).startswith("sent")
    job.wire.lose("/pause?")
    said = trainer.update(3)
    assert said.startswith("failed") and "/pause?" in said and job.wire.lost == 1
    assert job.serves(2)
    assert trainer.update(3).startswith("sent")
    assert job.serves(3)


def test_an_engine_whose_answers_to_install_never_come_stands_still(job: Wired) -> None:
    trainer = job.trainer(deadline=5.0)
    assert trainer.update(2).startswith("sent")
    job.wire.lose('"step": "Install"', cut=True)
    assert trainer.update(3).startswith("failed")
    # Who could resume an engine that has the new version does not know that it has.
    assert job.engine.client().paused()
    trainer.kill()
    job.wire.mend()
    # A successor finds it, and ends the update.
    successor = job.trainer()
    assert job.serves(3)
    assert successor.update(2).startswith("sent")
    assert job.serves(2)
    successor.kill()
