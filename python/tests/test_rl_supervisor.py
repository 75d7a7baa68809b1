"""Who dies, and what becomes of the run: over children that are no processes."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from weightcast.examples.rl.settings import LoopSettings, Post
from weightcast.examples.rl.supervisor import Supervisor
from weightcast.examples.rl_loop.processes import ChildFailed


class FakeChild:
    """A child that ends when it is told to."""

    def __init__(self, name, rank):
        self.name, self.code = f"{name} rank {rank}", None
        self.process = SimpleNamespace(
            poll=lambda: self.code, terminate=self.end, kill=self.end, wait=lambda _: self.code
        )

    def end(self, code=-15):
        self.code = code

    def failure(self):
        return f"{self.name} ended with code {self.code}" if self.code else None


class Rehearsal(Supervisor):
    """Starts fakes instead of processes."""

    def __init__(self, **options):
        self.losses = []
        settings = LoopSettings(**options)
        super().__init__(settings, "", 0, "", lambda *loss: self.losses.append(loss))

    def _start(self, role, name, size):
        self.lives[name] = self.lives.get(name, 0) + 1
        return [FakeChild(name, rank) for rank in range(size)]


@pytest.fixture(autouse=True)
def end_fakes(monkeypatch):
    """`subprocess.Popen.terminate` is for real processes."""
    monkeypatch.setattr(
        "weightcast.examples.rl.supervisor.end", lambda children: [child.end() for child in children]
    )


def test_a_rollout_is_replaced_whole():
    run = Rehearsal(rollouts=2, rollout_tp=2)
    run.start()
    first, other = run.rollouts["rollout-0"], run.rollouts["rollout-1"]
    first[1].end(-9)
    run._mend()
    assert first[0].code is not None, "a rank alone is no rollout"
    assert run.losses == [("rollout-0", "rollout-0 rank 1 ended with code -9")]
    assert run.rollouts["rollout-0"] is not first and run.lives["rollout-0"] == 2
    assert run.rollouts["rollout-1"] is other


def test_without_restarts_the_run_goes_on_with_the_others_then_ends():
    run = Rehearsal(rollouts=2, restarts=1)
    run.start()
    for _ in range(2):
        run.rollouts["rollout-0"][0].end(-9)
        run._mend()
    assert list(run.rollouts) == ["rollout-1"] and len(run.losses) == 2
    run.rollouts["rollout-1"][0].end(-9)
    with pytest.raises(ChildFailed, match="no rollout is left"):
        run._mend()


def test_a_rollout_that_leaves_early_is_lost_as_well():
    run = Rehearsal(rollouts=1)
    run.start()
    run.rollouts["rollout-0"][0].end(0)
    run._mend()
    assert run.losses == [("rollout-0", "rollout-0 rank 0 ended before the run was over")]


def test_a_trainer_that_dies_ends_the_run():
    run = Rehearsal(trainers=2)
    run.start()
    run.trainers[1].end(-9)
    with pytest.raises(ChildFailed, match="trainer rank 1"):
        run.run()


def test_the_run_is_over_when_all_trainers_are_done():
    run = Rehearsal(trainers=2)
    run.start()
    run.trainers[0].end(0)
    assert not run._trained()
    run.trainers[1].end(0)
    run.run()


def test_a_child_is_told_everything(monkeypatch):
    settings = LoopSettings(model="gpt2", seed=7)
    post = Post("rollout-0", 1, 2, 3, settings, "token", 4, 5)
    for name, value in post.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Post.from_environment() == post
