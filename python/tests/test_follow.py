"""An engine that follows: its own code calls nothing."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

import weightcast as wc

from .conftest import SOON

torch = pytest.importorskip("torch")

import weightcast.torch as wct  # noqa: E402
from weightcast.adapters.live.read import read  # noqa: E402
from weightcast.follow import Follower  # noqa: E402


class Job:
    """A trainer whose weights are all equal to the version."""

    def __init__(self, server):
        self.server = server
        self.module = torch.nn.Linear(8, 8).requires_grad_(False)
        self.trainer = wc.open("m", wc.Replica("trainer"), role="trainer", epoch="new", retain=1, server=server)
        self.trainer.register(wct.layout(self.module))

    def publish(self, version):
        if self.trainer.version is not None:
            self.trainer.unpublish()
        for parameter in self.module.parameters():
            parameter.fill_(version)
        self.trainer.publish(version)

    def rollout(self, module, name="rollout", **options):
        handle = wc.open("m", wc.Replica(name), server=self.server, **options)
        handle.register(wct.layout(module, beside=True))
        return handle


@pytest.fixture
def job(server):
    running = Job(server.address)
    yield running
    running.trainer.close()


def engine():
    return torch.nn.Linear(8, 8).requires_grad_(False)


def value(module):
    """The one value of all weights; fails if there are several."""
    values = torch.cat([p.flatten() for p in module.parameters()]).unique()
    assert len(values) == 1, "weights of two versions"
    return int(values[0])


def until(step, version, follower):
    """Takes steps until a version is installed."""
    waiting = threading.Event()
    for _ in range(int(SOON * 100)):
        step()
        if follower.version == version:
            return
        waiting.wait(0.01)
    raise AssertionError(f"version {version} has not come; {follower.version} is held, {follower.error}")


def test_forward_passes_install_what_has_come(job):
    module = engine()
    with job.rollout(module) as handle:
        follower = handle.follow(module)
        inputs = torch.ones(1, 8)
        for version in (1, 2, 3):
            job.publish(version)
            until(lambda: module(inputs), version, follower)
            assert value(module) == version
            # Eight weights of each row, and the bias.
            assert torch.equal(module(inputs), torch.full((1, 8), 9.0 * version))
        follower.stop()
        job.publish(4)
        module(inputs)
        assert value(module) == 3 and not follower.step()
        # The handle is the caller's again.
        assert handle.update(deadline=SOON).changed and value(module) == 4


def test_nothing_changes_between_safe_points(job):
    module, steps = engine(), []
    before = [p.clone() for p in module.parameters()]
    with job.rollout(module) as handle, handle.follow(steps.append) as follower:
        job.publish(1)
        job.trainer.wait(wc.held(1, by=1), deadline=SOON)
        assert all(map(torch.equal, before, module.parameters()))
        until(steps[0], 1, follower)
        assert value(module) == 1


def test_a_version_that_is_superseded_does_not_block(job):
    """The engine stands still while versions pass; then it takes the one that it has, and the newest."""
    module = engine()
    with job.rollout(module) as handle, handle.follow() as follower:
        job.publish(1)
        job.trainer.wait(wc.held(1, by=1), deadline=SOON)
        for version in (2, 3, 4):
            job.publish(version)
        until(follower.step, 4, follower)
        assert value(module) == 4


def test_a_new_run_is_followed(job, server):
    """Its numbers begin again."""
    module = engine()
    with job.rollout(module) as handle, handle.follow() as follower:
        job.publish(7)
        until(follower.step, 7, follower)
        job.trainer.close()
        job.trainer = wc.open("m", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address)
        job.trainer.register(wct.layout(job.module))
        job.publish(1)
        until(follower.step, 1, follower)
        assert value(module) == 1


def hand_over(follower, when):
    """Has a version be ready only once an event is set, which is cleared."""
    at_once = follower._hand_over

    def later(version):
        assert when.wait(SOON)
        when.clear()
        at_once(version)

    follower._hand_over = later


def test_shards_install_at_the_same_step(job):
    """Two shards take steps together. One learns of each version five steps after the other."""
    late = threading.Event()
    modules = [engine(), engine()]
    meeting = threading.Barrier(2, timeout=SOON)
    said = [0, 0]
    versions = [[], []]

    def agree(shard):
        def smallest(number):
            said[shard] = number
            meeting.wait()
            least = min(said)
            meeting.wait()
            return least

        return smallest

    def run(shard):
        handle = wc.open("m", wc.Replica("pair", shard=shard, num_shards=2), server=job.server)
        with handle:
            handle.register(wct.layout(modules[shard], beside=True), deadline=SOON)
            follower = handle.follow(agree=agree(shard))
            if shard == 1:
                hand_over(follower, late)
            waited = 0
            for _ in range(2_000):
                follower.step()
                waited += shard == 0 and follower._ready is not None
                if waited == 5:
                    late.set()
                    waited = 0
                versions[shard].append(follower.version)
                meeting.wait()
                if shard == 0 and follower.version in (1, 2, None) and job.trainer.version == follower.version:
                    job.publish((follower.version or 0) + 1)
                done = follower.version == 3 or versions[0] != versions[1][: len(versions[0])]
                threading.Event().wait(0.002)
                meeting.wait()
                if done:
                    break
            follower.stop()
            # The shards have made the same calls, and may go on.
            assert handle.list(deadline=SOON)

    job.publish(1)
    threads = [threading.Thread(target=run, args=(shard,)) for shard in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions[0] == versions[1] and versions[0][-1] == 3
    assert [value(module) for module in modules] == [3, 3]


def test_a_live_engine_finishes_what_it_follows(job):
    """Bytes land beside the engine's parameters; the engine's own rules bring them in."""
    module = engine()

    def load(weights):
        for name, tensor in weights:
            module.get_parameter(name).data.copy_(tensor)

    handle = wc.open("m", wc.Replica("rollout"), server=job.server)
    job.publish(1)
    live = read(dict(module.named_parameters()), load, handle.catalog(), unused={}, unsourced={})
    handle.register(live.layout(beside=True))
    with handle, handle.follow(install=live.finish) as follower:
        for version in (1, 2):
            job.trainer.wait(wc.held(version, by=1), deadline=SOON)
            assert version == 1 or value(module) == 1, "nothing changes between safe points"
            until(follower.step, version, follower)
            assert value(module) == version
            job.publish(version + 1)


def test_a_shard_that_cannot_install_stops_all(job):
    """Otherwise one would go on with old weights beside the other's new ones."""
    meeting, said, errors = threading.Barrier(2, timeout=SOON), [0, 0], [None, None]

    def run(shard):
        def agree(number):
            said[shard] = number
            meeting.wait()
            least = min(said)
            meeting.wait()
            return least

        def fail():
            raise ValueError("planted")

        handle = wc.open("m", wc.Replica("pair", shard=shard, num_shards=2), server=job.server)
        with handle:
            handle.register(wct.layout(engine(), beside=True), deadline=SOON)
            follower = handle.follow(agree=agree, install=fail if shard == 1 else None)
            job.publish(1) if shard == 0 else None
            pause = threading.Event()
            while errors[shard] is None:
                try:
                    follower.step()
                except Exception as error:
                    errors[shard] = error
                    if shard == 1:  # the other learns of it at the next step
                        with pytest.raises(ValueError, match="planted"):
                            follower.step()
                pause.wait(0.005)
            follower.stop()

    threads = [threading.Thread(target=run, args=(shard,)) for shard in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert str(errors[1]) == "planted" and "another shard of pair cannot follow" in str(errors[0])


def test_several_shards_must_agree(job):
    handle = wc.open("m", wc.Replica("pair", shard=0, num_shards=2), server=job.server)
    with pytest.raises(wc.Misuse, match="pass agree="):
        handle.follow()
    handle.close(deadline=1)


def test_what_never_ends_is_raised_at_the_safe_point(job, caplog):
    module = engine()
    with job.rollout(module) as handle, handle.follow() as follower:
        module.weight.data = torch.zeros(8, 8)
        job.publish(1)
        for _ in range(2):  # and again: no forward pass goes on with old weights
            with pytest.raises(wc.Misuse, match="weight: the storage has been replaced"):
                until(follower.step, 1, follower)
        assert follower.version is None and "following m has ended" in caplog.text
        module.weight.data = torch.zeros(8, 8)


class Turns:
    """A handle that only counts the turns which its follower begins, and holds each up until it is let go on."""

    model, version = "policy", 3

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)
        self.count = 0

    def wait(self, *_: object, **__: object) -> None:
        self.count += 1
        self.begun.release()
        self.goes_on.acquire()

    def _fetch(self, *_: object) -> Any:
        return SimpleNamespace(changed=False)


@pytest.mark.parametrize(("least", "turns"), [(2, 3), (3, 4)])
def test_whoever_stops_takes_part_in_the_turn_that_another_shard_may_have_begun(least: int, turns: int):
    handle, asked = Turns(), []

    def agree(mine: int) -> int:
        asked.append(mine)
        handle.goes_on.release(turns)
        return least

    follower = Follower(cast(wc.Handle, handle), None, None, agree)
    for turn in range(1, 4):
        assert handle.begun.acquire(timeout=SOON)
        if turn < 3:
            handle.goes_on.release()
    follower.stop()
    assert (asked, handle.count) == ([3], turns), "the least of all shards' turns, and one more"
