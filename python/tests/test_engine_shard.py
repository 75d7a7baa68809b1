"""One worker of a live engine: what its parameters hold after each step of an update, and after each failure."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.catalog import Catalog  # noqa: E402
from weightcast.adapters.engine import EngineShard, Settings  # noqa: E402
from weightcast.adapters.live import LiveLayout  # noqa: E402
from weightcast.adapters.live.read import read  # noqa: E402

_names = itertools.count()


class Engine(nn.Module):
    """A fused parameter, and one that converts."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.zeros(8, 4), requires_grad=False)
        self.turned = nn.Parameter(torch.zeros(4, 2), requires_grad=False)

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            if name == "c":
                self.turned.data.copy_(tensor.t())
            elif name in "ab":
                self.fused.data.chunk(2)["ab".index(name)].copy_(tensor)

    def read(self, catalog: Catalog) -> LiveLayout:
        return read(dict(self.named_parameters()), self.load_weights, catalog, unused={}, unsourced={})

    def holds(self, value: float) -> bool:
        return all(bool((p == value).all()) for p in self.parameters())


class Job:
    """A trainer, and workers that join it."""

    def __init__(self, server: str, retain: int = 2, **more: torch.Tensor) -> None:
        self.server = server
        self.tensors = {"a": torch.zeros(4, 4), "b": torch.zeros(4, 4), "c": torch.zeros(2, 4), **more}
        layout = wc.Layout()
        for name, tensor in self.tensors.items():
            layout.add(tensor, name)
        self.trainer = wc.open(
            "policy", wc.Replica("trainer"), role="trainer", epoch="new", retain=retain, server=server
        )
        self.trainer.register(layout)

    def publish(self, version: int) -> None:
        """All of its values are the version."""
        for tensor in self.tensors.values():
            tensor.fill_(version)
        self.trainer.publish(version)

    def shard(self, engine: Engine, **settings) -> EngineShard:
        given = Settings(server=self.server, deadline=20.0, **settings)
        return EngineShard(given, wc.Replica(f"engine-{next(_names)}"), engine.read)


@pytest.fixture
def job():
    with wc.serve() as server:
        made = Job(server.address)
        yield made
        made.trainer.close()


CATALOG = {"a": ((4, 4), "F32"), "b": ((4, 4), "F32"), "c": ((2, 4), "F32")}


@pytest.mark.parametrize("landing", ["staged", "in_place"])
def test_a_version_is_fetched_and_installed(job: Job, landing: str) -> None:
    engine = Engine()
    shard = job.shard(engine, landing=landing, catalog=CATALOG)
    for version in (1, 2):
        job.publish(version)
        shard.begin()
        shard.fetch(version)
        assert shard.state.fetched == version
        if landing == "staged":
            assert engine.holds(version - 1), "the engine generates on"
            shard.check_serving()
        else:
            with pytest.raises(wc.WeightcastError, match="fetched into the parameters"):
                shard.check_serving()
        assert shard.install() == version == shard.install(), "asked again, it says the same"
        assert engine.holds(version) and shard.state.installed == version
        shard.check_serving()
        job.trainer.unpublish()
    shard.close()


class Sparing(Engine):
    """It makes no use of `d`."""

    def read(self, catalog: Catalog) -> LiveLayout:
        own = dict(self.named_parameters())
        return read(own, self.load_weights, catalog, unused={"d": "a draft's"}, unsourced={})


@pytest.mark.parametrize("landing", ["staged", "in_place"])
def test_what_an_engine_makes_no_use_of_comes_for_those_that_do(landing: str) -> None:
    with wc.serve() as server:
        job = Job(server.address, d=torch.zeros(3))
        job.publish(1)
        first, second = Sparing(), Sparing()
        one = job.shard(first, landing=landing)
        one.fetch(1)
        one.install()
        job.trainer.unpublish()
        two = job.shard(second, landing=landing)
        two.fetch(1)
        two.install()
        assert first.holds(1) and second.holds(1), "the second has it from the first"
        one.close()
        two.close()
        job.trainer.close()


def test_names_that_do_not_match_are_an_error_before_the_first_version(job: Job) -> None:
    with pytest.raises(wc.LayoutMismatch):
        job.shard(Engine(), catalog={**CATALOG, "d": ((1,), "F32")})
    job.publish(1)
    # Without a catalog, what is published now is read.
    shard = job.shard(Engine())
    shard.fetch()
    assert shard.install() == 1
    shard.close()


def test_a_fetch_in_the_background_ends_with_the_install(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    shard.fetch(1, wait=False)  # of a version that is still to come
    assert shard.state.fetched is None
    job.publish(1)
    assert shard.install() == 1 and engine.holds(1)
    with pytest.raises(wc.Misuse, match="land in place"):
        job.shard(Engine(), landing="in_place").fetch(1, wait=False)
    shard.close()


def test_a_layout_is_read_before_a_fetch_goes_to_the_background(job: Job) -> None:
    """The engine's loader runs for that, on parameters that a forward pass must not see meanwhile."""
    threads = set()
    engine = Engine()
    shard = job.shard(engine)
    loader = engine.load_weights
    engine.load_weights = lambda weights: threads.add(current_thread()) or loader(weights)
    job.publish(1)
    shard.fetch(1, wait=False)
    assert shard.install() == 1 and engine.holds(1)
    assert threads == {current_thread()}
    shard.close()


def test_workers_whose_calls_differed_join_again(job: Job) -> None:
    engines = [Engine(), Engine()]
    given = Settings(server=job.server, deadline=20.0, catalog=CATALOG)
    replica = [wc.Replica("of-two", rank, 2) for rank in range(2)]
    with ThreadPoolExecutor(2) as both:
        made = both.map(lambda rank: EngineShard(given, replica[rank], engines[rank].read), range(2))
        shards = list(made)
        job.publish(1)
        # One makes another call than its peer: the group ends.
        calls = [both.submit(shards[0].fetch, 1), both.submit(shards[1].handle.list)]
        assert any(call.exception() is not None for call in calls)
        for _ in range(2):
            list(both.map(EngineShard.begin, shards))
            list(both.map(lambda shard: shard.fetch(1), shards))
            assert list(both.map(EngineShard.install, shards)) == [1, 1]
        assert all(engine.holds(1) for engine in engines)
        list(both.map(EngineShard.close, shards))


def test_a_worker_that_has_fetched_alone_joins_again_with_its_peer(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it asks first is not taken for the call with which the next update begins."""
    asks, check = Event(), EngineShard._check_not_over

    def tell(self: EngineShard, *arguments: Any) -> None:
        asks.set()
        check(self, *arguments)

    monkeypatch.setattr(EngineShard, "_check_not_over", tell)
    engines = [Engine(), Engine()]
    given = Settings(server=job.server, deadline=5.0, catalog=CATALOG)
    replica = [wc.Replica("of-two", rank, 2) for rank in range(2)]
    with ThreadPoolExecutor(2) as both:
        made = both.map(lambda rank: EngineShard(given, replica[rank], engines[rank].read), range(2))
        shards = list(made)
        job.publish(1)
        run = job.trainer.epoch
        for at in range(2):
            asks.clear()
            shards[at].fetch(1, wait=False, run=run)  # its peer has failed
            assert asks.wait(60)
            list(both.map(EngineShard.begin, shards))
            list(both.map(lambda shard: shard.fetch(1, run=run), shards))
            assert list(both.map(EngineShard.install, shards)) == [1, 1]
        assert all(engine.holds(1) for engine in engines)
        list(both.map(EngineShard.close, shards))


def test_a_fetch_takes_over_from_one_that_still_waits(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    job.publish(1)
    shard.fetch(3, wait=False, deadline=0.5)  # which nobody publishes
    shard.fetch(1, wait=False)
    assert shard.install() == 1 and engine.holds(1)
    assert shard.state.failed is None, "of the first one"
    shard.close()


def test_a_version_that_was_given_up_and_comes_late_is_not_installed(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    shard.fetch(1, wait=False)
    shard.give_up()
    job.publish(1)
    with pytest.raises(wc.Misuse, match="no version has been fetched"):
        shard.install()  # which waits for the bytes
    assert shard.state.fetched is None and not shard.arrived() and engine.holds(0)
    shard.fetch(1)
    assert shard.install() == 1 and engine.holds(1)
    shard.close()


def test_a_version_that_was_given_up_is_not_installed_on_waking(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    job.publish(1)
    shard.fetch(1)
    shard.install()
    job.trainer.unpublish()
    job.publish(2)
    shard.fetch(2)
    shard.discard()
    shard.restore()
    assert "discarded" in shard.state.incomplete and not engine.holds(2)
    shard.fetch(2)
    assert shard.install() == 2 and engine.holds(2)
    shard.close()


def test_a_worker_is_spoiled_until_all_have_installed(job: Job) -> None:
    shard = job.shard(Engine(), catalog=CATALOG)
    job.publish(1)
    shard.begin()
    shard.fetch(1)
    shard.install()
    shard.spoil("another worker failed")
    with pytest.raises(wc.WeightcastError, match="another worker failed"):
        shard.check_serving()
    assert shard.install() == 1
    shard.check_serving()
    shard.close()


def test_a_fetch_that_fails_leaves_the_engine_as_it_was(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    job.publish(1)
    shard.fetch(1)
    shard.install()
    shard.begin()
    shard.fetch(2, wait=False, deadline=0.3)
    with pytest.raises(wc.WeightcastError):
        shard.install()
    assert shard.state.failed is not None and shard.state.incomplete is None
    assert engine.holds(1)
    # The next fetch has nothing to do with that.
    shard.fetch(1, allow_rollback=True)
    assert shard.state.failed is None
    job.trainer.unpublish()
    job.publish(3)
    shard.fetch(3)
    shard.install()
    with pytest.raises(wc.Misuse, match="allow_rollback"):
        shard.fetch(1)  # which is retained
    shard.fetch(1, allow_rollback=True)
    assert shard.install() == 1 and engine.holds(1)
    shard.close()


def test_an_install_that_fails_is_incomplete_until_one_succeeds(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    job.publish(1)
    shard.fetch(1)
    finish = shard._live.finish

    def halfway() -> None:
        engine.fused.fill_(1)
        raise ZeroDivisionError

    shard._live.finish = halfway
    with pytest.raises(ZeroDivisionError):
        shard.install()
    with pytest.raises(wc.WeightcastError, match="version 1 was being installed"):
        shard.check_serving()
    shard._live.finish = finish
    assert shard.install() == 1 and engine.holds(1)
    shard.check_serving()
    # An install of the update before is none of this one.
    shard.begin()
    with pytest.raises(wc.Misuse, match="no version has been fetched"):
        shard.install()
    shard.close()


def test_discarded_weights_come_back_from_beside(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    shard.discard()
    shard.restore()
    assert "discarded" in shard.state.incomplete, "nothing was fetched that could bring them back"
    job.publish(1)
    shard.fetch(1)
    shard.install()
    shard.discard()
    for parameter in engine.parameters():
        parameter.fill_(9)
    shard.restore()
    assert engine.holds(1) and shard.state.incomplete is None
    shard.close()


def test_what_lies_beside_comes_back_to_its_own_parameters_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts have moved since: waking up is no error, and the engine waits for an update."""
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG)
    job.publish(1)
    shard.fetch(1)
    shard.install()
    shard.discard()
    monkeypatch.setattr(LiveLayout, "stale", lambda self: True)
    shard.restore()
    assert "discarded" in shard.state.incomplete
    monkeypatch.undo()
    job.trainer.unpublish()
    job.publish(2)
    shard.fetch(2)
    assert shard.install() == 2 and engine.holds(2)
    shard.close()


def test_memory_in_place_is_withdrawn_before_it_goes(job: Job) -> None:
    engine = Engine()
    shard = job.shard(engine, catalog=CATALOG, landing="in_place")
    job.publish(1)
    shard.fetch(1)
    shard.install()
    assert len(job.trainer.list()[1]) == 2
    shard.withdraw()
    assert job.trainer.list()[1] == {"trainer"}, "nobody reads what is about to go"
    job.trainer.unpublish()
    job.publish(2)
    shard.fetch(2)
    assert shard.install() == 2 and engine.holds(2)
    shard.close()


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"landing": "here"}, {"draft": "updated"}, {"deadline": 0.0}, {"deadline": float("nan")}):
        with pytest.raises(wc.Misuse):
            Settings(**wrong)
    with pytest.raises(TypeError):
        Settings(servers="x")
    assert Settings(prefix="policy.").known_name("policy.a.b") == "a.b"


def test_a_version_of_a_run_that_is_over_is_refused_and_not_waited_for(job: Job) -> None:
    job.publish(1)
    run, engine = job.trainer.epoch, Engine()
    shard = job.shard(engine)
    shard.fetch(1, run=run)
    shard.install()
    job.trainer.close()
    later = Job(job.server)
    later.publish(3)
    with pytest.raises(wc.VersionUnavailable, match=f"version 2 of run {run} was ordered, and there is run {later.trainer.epoch}"):
        shard.fetch(2, run=run)
    shard.fetch(3, run=later.trainer.epoch)
    shard.install()
    with pytest.raises(wc.VersionUnavailable, match="was ordered"):
        shard.fetch(1, run=run)
    assert engine.holds(3) and shard.state.installed == 3
    shard.close()
    later.trainer.close()
