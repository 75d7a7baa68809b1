"""An engine of a fleet of two, or their trainer, is killed, held past its deadline or stopped for a while, in each state of an
update: what serves is the old version on all engines, or the new one on all."""

import os
import signal
from collections.abc import Iterator

import pytest

from .rig import Program, Rig

FULL = pytest.mark.full
#: Where an engine is before, and after, the server has noted that the version counts.
BEFORE = ["before-fetch", "after-fetch", "before-bytes", "after-bytes"]
AFTER = ["before-install", "within-install", "after-install"]
ALL = [pytest.param(place, marks=[] if place == "within-install" else FULL) for place in (*BEFORE, *AFTER)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("fleet"))
    yield made
    made.end()


@pytest.fixture
def trainer(rig: Rig) -> Iterator[Program]:
    """One whose engines serve weights 2."""
    rig.start()
    started = rig.trainer()
    assert started.asked(2).startswith("sent")
    assert rig.serve == [2, 2]
    yield started
    started.kill()


def held(rig: Rig, trainer: Program, place: str) -> int:
    """The first engine is held there while it gets weights 3: its process."""
    rig.stops[0].hold(place)
    trainer.tell(3)
    return rig.stops[0].reached(place)


@pytest.mark.parametrize("place", ALL)
def test_an_engine_that_is_killed(rig: Rig, trainer: Program, place: str) -> None:
    held(rig, trainer, place)
    rig.kill_engine()
    assert trainer.hears().startswith("failed")
    assert rig.serve == [2 if place in BEFORE else 3]
    assert trainer.asked(1).startswith("sent"), "without the one that is dead"
    assert rig.serve == [1]
    trainer.kill()
    # Another one in its place has loaded weights 0; whoever joins brings it to the fleet's version.
    rig.start()
    successor = rig.trainer()
    assert rig.serve == [1, 1]
    assert successor.asked(2).startswith("sent")
    assert rig.serve == [2, 2]
    successor.kill()


@pytest.mark.parametrize("place", ALL)
def test_a_trainer_that_is_killed(rig: Rig, trainer: Program, place: str) -> None:
    held(rig, trainer, place)
    trainer.kill()
    rig.stops[0].clear()
    for engine in rig.fleet:
        engine.told_to_go_on()
    assert rig.serve == ([2, 2] if place in BEFORE else [None, None]), "nobody serves what nobody has stamped"
    decided = 2 if place in BEFORE else 3
    successor = rig.trainer()
    assert rig.serve == [decided, decided]
    assert successor.asked(1).startswith("sent")
    assert rig.serve == [1, 1]
    successor.kill()


@FULL
@pytest.mark.parametrize("place", [*BEFORE, *AFTER])
def test_an_engine_that_is_stopped_for_a_while(rig: Rig, trainer: Program, place: str) -> None:
    process = held(rig, trainer, place)
    os.kill(process, signal.SIGSTOP)
    rig.stops[0].clear()
    os.kill(process, signal.SIGCONT)
    assert trainer.hears().startswith("sent")
    assert rig.serve == [3, 3]


@FULL
@pytest.mark.parametrize("place", [*BEFORE, *AFTER])
def test_an_engine_that_hangs_past_the_deadline(rig: Rig, trainer: Program, place: str) -> None:
    trainer.kill()
    impatient = rig.trainer(deadline=5.0)
    held(rig, impatient, place)
    assert impatient.hears().startswith("failed")
    rig.stops[0].clear()
    decided = 2 if place in BEFORE else 3
    assert set(rig.serve) <= {decided, None}
    impatient.kill()
    successor = rig.trainer()
    assert successor.asked(1).startswith("sent")
    assert rig.serve == [1, 1]
    successor.kill()
