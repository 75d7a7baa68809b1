"""Steps that all workers of a vLLM engine take, or none, with a stand-in for what they exchange."""

import json
from threading import Barrier, Thread, current_thread
from types import SimpleNamespace

import pytest

from .stand_ins import stand_in

pytest.importorskip("torch")

from weightcast.adapters.engine import EngineState
from weightcast.adapters.vllm import agreed as module
from weightcast.adapters.vllm.agreed import StepFailed, agreed


class Engine:
    """What one worker holds."""

    def __init__(self) -> None:
        self.state = EngineState(1, None, None)
        self.spoiled: str | None = None
        self.abandoned = False

    def spoil(self, why: str) -> None:
        self.spoiled = why


class Workers:
    """Three workers in threads, that hear each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: dict[int, dict] = {}
        self.barrier = Barrier(3)
        self.all = [
            SimpleNamespace(rank=rank, weight_transfer_engine=Engine(), _weight_update_active=True)
            for rank in range(3)
        ]
        monkeypatch.setattr(module, "exchanged", self._exchanged)

    def _exchanged(self, own: dict) -> list[dict]:
        self.said[int(current_thread().name)] = json.loads(json.dumps(own))
        self.barrier.wait()
        heard = [self.said[rank] for rank in range(3)]
        self.barrier.wait()
        return heard

    def take(self, step: str, *calls) -> list[BaseException | None]:
        raised: list[BaseException | None] = [None] * 3

        def run(rank: int) -> None:
            try:
                agreed(self.all[rank], step, lambda: calls[rank](self.all[rank].weight_transfer_engine))
            except BaseException as error:
                raised[rank] = error

        threads = [Thread(target=run, args=(rank,), name=str(rank)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return raised


def well(engine: Engine) -> None: ...


def ill(engine: Engine) -> None:
    raise ValueError("no room")


def installs(engine: Engine) -> None:
    engine.state = EngineState(2, None, None)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


def test_a_step_that_all_take_raises_nowhere(workers: Workers) -> None:
    assert workers.take("fetch", well, well, well) == [None] * 3
    assert all(w._weight_update_active for w in workers.all)


@pytest.mark.parametrize("at", range(3))
def test_the_last_worker_alone_raises_for_any(workers: Workers, at: int) -> None:
    """vLLM stops reading answers at the first error: those behind it would be answers to later calls."""
    calls = [well, well, well]
    calls[at] = ill
    raised = workers.take("fetch", *calls)
    assert raised[:2] == [None, None] and isinstance(raised[2], StepFailed)
    assert str(raised[2]) == f"worker {at}: no room"
    assert not any(w._weight_update_active for w in workers.all), "vLLM notes the same on all"


def test_an_install_that_failed_can_be_tried_again_on_all(workers: Workers) -> None:
    for worker in workers.all:
        worker._weight_update_active = False  # as vLLM notes after a success
    workers.take("finish", installs, ill, installs)
    assert all(w._weight_update_active for w in workers.all)
    spoiled = [w.weight_transfer_engine.spoiled for w in workers.all]
    assert all("another worker" in why for why in spoiled), "they hold different versions"


def test_workers_that_all_hold_the_same_are_not_spoiled(workers: Workers) -> None:
    workers.take("finish", ill, ill, ill)
    assert [w.weight_transfer_engine.spoiled for w in workers.all] == [None] * 3
    workers.take("finish", installs, installs, installs)
    workers.take("finish", well, ill, well)
    assert [w.weight_transfer_engine.spoiled for w in workers.all] == [None] * 3


def test_an_update_that_is_abandoned_ends_without_an_error(workers: Workers) -> None:
    def abandon(engine: Engine) -> None:
        engine.abandoned = True

    assert workers.take("fetch", abandon, abandon, abandon) == [None] * 3
    assert not any(w._weight_update_active for w in workers.all)


@pytest.mark.parametrize(("error", "told"), [(ValueError("no room"), "no room"), (ValueError(), "ValueError"), (ValueError("a" * 2000), "a" * 1301)])
def test_an_error_is_told_in_few_words(workers: Workers, error: Exception, told: str) -> None:
    def fails(engine: Engine) -> None:
        raise error

    raised = workers.take("fetch", fails, well, well)
    assert str(raised[2]) == f"worker 0: {told}"
    assert workers.said[0] == {"error": told, "installed": 1, "whole": True}


@pytest.mark.parametrize(("state", "held"), [
    (EngineState(4, None, "half"), {"installed": 4, "whole": False}), (EngineState(None, 3, None), {"installed": None, "whole": True}),
    (None, {"installed": None, "whole": True}),
])
def test_workers_tell_each_other_what_they_hold(workers: Workers, state: EngineState | None, held: dict) -> None:
    workers.all[1].weight_transfer_engine.state = state
    workers.take("finish", well, well, ill)
    assert workers.said[1] == {"error": None, **held}
    spoiled = {worker.weight_transfer_engine.spoiled for worker in workers.all}
    assert spoiled == {"another worker of this engine did not install the version"}, "they hold different things"


def test_what_one_worker_says_is_heard_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(world_size=1, cpu_group="cpu")
    stand_in(monkeypatch, "vllm", {"vllm.distributed.parallel_state": {"get_world_group": lambda: group}}, [])
    monkeypatch.setattr(module, "exchange", lambda text, of: [text, json.dumps({"from": of})])
    assert module.exchanged({"a": 1}) == [{"a": 1}]
    group.world_size = 2
    assert module.exchanged({"a": 1}) == [{"a": 1}, {"from": "cpu"}]
