"""SGLang's HTTP server follows a trainer: pause, begin, bytes, end, version, continue."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import weightcast as wc
from tests.notices import Straight
from tests_vllm.live.weights import Held
from tests_vllm.rules import Rules
from tests_vllm.trainer import checkpoint
from weightcast.adapters.engine import EngineShard
from weightcast.adapters.sglang import SGLangEngine, SGLangTrainer, TrainerInfo
from weightcast.adapters.sglang.http import StartedAgain
from weightcast.adapters.sglang.request import LOADER, payload

from .configs import config
from .serving import Served, WeightUpdater, engine, runtime_context
from .test_conformance import DERIVED

#: SGLang's own, as it is before the first call.
UNWATCHED = WeightUpdater.update_weights_from_tensor

FAMILIES = ("qwen3", "qwen3_moe", "deepseek_v3")


class Rig:
    """A trainer and an SGLang server of one family, and the reference server between them."""

    def __init__(self, family: str, directory: Path) -> None:
        self.config = config(family, random.Random(family))
        self.catalog = Rules(self.config, directory).catalog()
        #: Loads by itself what the engine gets from its trainer. Built first: building publishes anew.
        self._other = self.built()
        self.model = self.built()
        self.served = Served(runtime_context.get_server_args(), self.model)
        self.client = SGLangEngine(self.served.url, timeout=20.0)
        self.job = wc.serve(lease=2.0)
        self.trained = Held(self.values(1))
        self.joined = False

    def built(self) -> torch.nn.Module:
        """A model as an engine has loaded it."""
        model = engine.build(self.config, tp=1, rank=0, custom_weight_loader=[LOADER])
        model.load_weights(self.values(0).items())
        return model

    def values(self, version: int) -> dict[str, torch.Tensor]:
        return checkpoint(self.catalog, version)

    def trainer(self, **more: Any) -> SGLangTrainer:
        self.joined = True
        info = TrainerInfo(server=self.job.address, **{"deadline": 10.0, **more})
        return SGLangTrainer(info, client=self.client, source=self.trained)

    def holds(self, version: int) -> bool:
        """Whether the engine's parameters, and what is derived from them, are to the bit those that the
        model's own `load_weights` makes of a checkpoint."""
        self._other.load_weights(self.values(version).items())
        own, expected = state(self.model), state(self._other)
        return own.keys() == expected.keys() and all(torch.equal(own[n], expected[n]) for n in expected)

    @property
    def generates(self) -> bool:
        self.served.engine.settle()
        return not self.served.tokenizer.is_pause and not self.served.engine._engine_paused

    def stop(self) -> None:
        if self.served.engine.alive and self.joined:
            self.client.leave()
        self.served.stop()
        self.job.close()


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    derived = {
        f"{name}.{which}": getattr(module, which)
        for name, module in model.named_modules()
        for which in DERIVED
        if getattr(module, which, None) is not None
    }
    return dict(model.named_parameters()) | derived


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(getattr(request, "param", "qwen3"), tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("rig", FAMILIES, indirect=True)
def test_an_engine_follows_its_trainer(rig: Rig) -> None:
    assert rig.holds(0)
    WeightUpdater.update_weights_from_tensor = UNWATCHED
    trainer = rig.trainer()
    for version in (1, 2):
        rig.trained.become(rig.values(version))
        assert trainer.send_weights() == version
        assert rig.holds(version)
        assert rig.client.weight_version() == str(version)
        assert rig.generates
    trainer.shutdown()
    assert [s.installed for s in rig.client.states()] == [2]


def test_latent_attention_is_derived_anew(rig: Rig) -> None:
    """What `holds` compares in a DeepSeek is there, and in no other family."""
    assert not any(name.endswith(DERIVED) for name in state(rig.model))
    deepseek = engine.build(config("deepseek_v3", random.Random(0)), tp=1, rank=0)
    deepseek.post_load_weights()
    assert any(name.endswith(DERIVED) for name in state(deepseek))


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
def test_modes_of_pausing(rig: Rig, mode: str) -> None:
    """The cache goes in every mode in which nothing that it is needed for goes on."""
    trainer = rig.trainer(pause=mode)
    if mode == "retract":
        # What was taken back waits in the queue until generation goes on.
        rig.served.engine.waits = True
    trainer.send_weights()
    assert rig.holds(1) and rig.generates
    assert rig.served.engine.flushed == (0 if mode == "in_place" else 1)
    assert bool(rig.served.engine.aborted) == (mode == "abort")
    trainer.shutdown()


def test_the_protocol_of_an_update(rig: Rig) -> None:
    """In SGLang's own order: nothing is installed but between pause and continue, in a session."""
    trainer = rig.trainer(pause="retract")
    heard = rig.served.engine.heard
    rig.served.engine.settle()
    heard.clear()
    trainer.send_weights()
    rig.served.engine.settle()
    session = ["BeginWeightUpdate", "UpdateWeightsFromTensor", "EndWeightUpdate"]
    told = []
    while heard:
        if heard[:3] == session:
            del heard[:3]
            told.append("session")
        else:
            told.append(heard.pop(0))
    quiet = ["PauseGeneration", "session", "ContinueGeneration"]
    questions = 0
    while told[:3] == quiet:
        del told[:3]
        questions += 1
    assert questions >= 4, "what it is, negotiate, fetch, and whether it may pause"
    assert told.count("session") >= 8, "each step, and once more those of the engine as a whole"
    standing = ["PauseGeneration", "FlushCache", "UpdateWeightVersion", "ContinueGeneration"]
    assert [what for what in told if what != "session"] == standing
    trainer.shutdown()


def test_a_fetch_that_fails_leaves_the_engine_as_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = rig.trainer()
    trainer.send_weights()
    rig.trained.become(rig.values(2))
    with monkeypatch.context() as patch:
        patch.setattr(EngineShard, "_bring", failing("the network is gone"))
        with pytest.raises(wc.WeightcastError, match="version 2 was given up.*the network is gone"):
            trainer.send_weights()
    assert rig.holds(1) and rig.generates and rig.client.weight_version() == "1"
    trainer.send_weights()
    assert rig.holds(2) and rig.generates and rig.client.weight_version() == "3"
    trainer.shutdown()


def test_bytes_that_land_in_place(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is paused for the fetch as well; one that fails leaves the engine empty, and paused."""
    trainer = rig.trainer(engine={"landing": "in_place"})
    trainer.send_weights()
    assert rig.holds(1) and rig.generates
    with monkeypatch.context() as patch:
        patch.setattr("weightcast.handle.Handle.update", failing("the network is gone"))
        with pytest.raises(wc.WeightcastError, match="the network is gone"):
            trainer.send_weights()
    assert rig.served.tokenizer.is_pause
    rig.trained.become(rig.values(3))
    trainer.send_weights()
    assert rig.holds(3) and rig.generates
    trainer.shutdown()


def test_a_question_that_fails_leaves_the_engine_paused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then what the engine holds; the next update finds out."""
    trainer = rig.trainer(deadline=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(SGLangEngine, "_load", failing("no answer"))
        with pytest.raises(wc.WeightcastError, match="may serve and does not answer.*no answer"):
            trainer.send_weights()
    assert rig.served.tokenizer.is_pause
    trainer.shutdown()
    trainer = rig.trainer(name="successor")
    trainer.send_weights(version=2)
    assert rig.holds(1) and rig.generates
    trainer.shutdown()


def test_an_install_that_fails_once_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = rig.trainer()
    install = EngineShard.install
    tries = []

    def once(shard: EngineShard) -> int:
        tries.append(shard)
        return failing("halfway")() if len(tries) == 1 else install(shard)

    monkeypatch.setattr(EngineShard, "install", once)
    trainer.send_weights()
    assert len(tries) == 2 and rig.holds(1) and rig.generates
    trainer.shutdown()


def test_an_install_that_fails_leaves_the_engine_paused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a trainer comes, whose joining alone installs what was decided: nothing else has it go on."""
    trainer = rig.trainer()
    with monkeypatch.context() as patch:
        patch.setattr("weightcast.adapters.live.layout.LiveLayout.finish", failing("halfway"))
        with pytest.raises(wc.WeightcastError, match="halfway"):
            trainer.send_weights()
    assert rig.served.tokenizer.is_pause and rig.served.engine.alive
    trainer.shutdown()
    assert rig.client.states()[0].incomplete
    rig.client.ask("POST", "continue_generation", {"torch_empty_cache": False})
    assert not rig.generates
    rig.client = SGLangEngine(rig.served.url, timeout=20.0)
    successor = rig.trainer(name="successor")
    assert rig.holds(1) and rig.generates and rig.client.weight_version() == "1"
    successor.send_weights(version=2)
    assert rig.holds(1) and rig.generates and rig.client.weight_version() == "2"
    successor.shutdown()


def test_a_session_that_a_lost_trainer_left_open_is_closed(rig: Rig) -> None:
    trainer = rig.trainer()
    rig.client.ask("POST", "pause_generation", {"mode": "in_place"})
    rig.client.ask("POST", "begin_weight_update", {})
    trainer.send_weights()
    assert rig.holds(1) and rig.generates
    trainer.shutdown()


def test_an_engine_that_was_started_again_joins_by_itself(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = rig.trainer()
    rig.client.leave()
    trainer.send_weights()
    assert rig.holds(1) and rig.generates
    # A new process has loaded nothing of weightcast's before it is asked.
    rig.trained.become(rig.values(2))
    monkeypatch.setattr(WeightUpdater, "update_weights_from_tensor", UNWATCHED)
    trainer.send_weights()
    assert rig.holds(2) and rig.generates
    trainer.shutdown()


def test_a_pause_ends_with_the_process_that_was_paused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = rig.trainer()
    trainer.send_weights()
    rig.client.leave()
    rig.client.pause("retract")
    assert rig.client.paused()
    # Started again: the new process was paused by nobody, and the next question pauses it by itself.
    monkeypatch.setattr(WeightUpdater, "update_weights_from_tensor", UNWATCHED)
    with pytest.raises(StartedAgain):
        rig.client.states()
    assert not rig.client.paused()
    trainer.shutdown()


def paused_by_a_lost_driver(rig: Rig) -> None:
    """The engine takes the pause of a driver that gives no other order."""
    from weightcast.adapters.sglang.loader import _workers

    orders = _workers[id(rig.model)].orders
    assert orders is not None
    seen = orders.report()["seen"]
    pause = {
        "attempt": seen | {"round": seen["round"] + 1},
        "life": orders.life,
        "step": "Pause",
        "version": {"epoch": 1, "number": 9},
        "old": None,
        "means": "Staged",
        "keep_caches": False,
        "deadline": 10**10,
        "transaction": None,
    }
    (said,) = rig.client.order(pause)
    assert said is not None and said["perform"] == pause["attempt"] and rig.generates
    rig.client.pause("retract")
    (said,) = rig.client.performed(pause["attempt"], None)
    assert said["answers"] == [{"attempt": pause["attempt"], "answer": "Done"}]
    # Whoever comes now knows nothing of it.
    rig.client = SGLangEngine(rig.served.url, timeout=20.0)
    rig.client._ranks = 1


def test_an_engine_that_a_lost_trainer_has_paused_stays_so(rig: Rig) -> None:
    """Nobody has it go on by asking, or by SGLang's own route; but whoever releases it."""
    trainer = rig.trainer()
    trainer.send_weights()
    paused_by_a_lost_driver(rig)
    assert [state.installed for state in rig.client.states()] == [1] and not rig.generates
    rig.client.ask("POST", "continue_generation", {"torch_empty_cache": False})
    assert not rig.generates
    rig.client.release()
    assert rig.generates and rig.holds(1)
    trainer.shutdown()


def test_a_successor_ends_what_a_lost_trainer_has_left(rig: Rig) -> None:
    lost = rig.trainer()
    lost.send_weights()
    paused_by_a_lost_driver(rig)
    successor = rig.trainer(name="successor")
    assert rig.generates and rig.holds(1), "by joining alone"
    rig.trained.become(rig.values(2))
    successor.send_weights(version=2)
    assert rig.generates and rig.holds(2)
    successor.shutdown()
    lost.shutdown()


def test_a_router_is_sent_to_an_engine_that_serves(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weightcast.adapters.engine.orders.Notices", Straight)
    trainer = rig.trainer()
    trainer.send_weights()
    (lease,) = wc.engines("policy", server=rig.job.address)
    assert lease.engine == rig.served.url and lease.admitted and lease.version == 1
    trainer.shutdown()


def test_names_that_do_not_match_are_refused_at_joining(rig: Rig) -> None:
    rig.trained.register_parameter("stranger", torch.nn.Parameter(torch.zeros(3)))
    with pytest.raises(wc.WeightcastError, match="stranger"):
        rig.trainer()
    assert rig.served.engine.alive and rig.generates and rig.holds(0)


def test_engines_that_cannot_follow_are_refused(rig: Rig) -> None:
    with runtime_context.get_spec().override(speculative_algorithm="EAGLE"):
        with pytest.raises(wc.WeightcastError, match="draft='stale'"):
            rig.trainer()
        rig.trainer(engine={"draft": "stale"}).shutdown()
    rig.client.leave()
    with runtime_context.get_exec().moe.override(enable_eplb=True):
        with pytest.raises(wc.WeightcastError, match="without EPLB"):
            rig.trainer()


def test_a_server_without_the_loader_is_refused(rig: Rig) -> None:
    """SGLang ends an engine that is asked for a loader it does not know."""
    engine.build(rig.config, tp=1, rank=0)
    rig.served.tokenizer.server_args = runtime_context.get_server_args()
    client = SGLangEngine(rig.served.url)
    with pytest.raises(wc.Misuse, match=f"--custom-weight-loader {LOADER}"):
        client.init_weight_transfer_engine({})
    with pytest.raises(wc.Misuse, match="call init_weight_transfer_engine first"):
        client.start_weight_update()


def test_what_is_asked_passes_through_the_request() -> None:
    """SGLang's own reading of a payload, which lets no code through."""
    from sglang.srt.utils.common import MultiprocessingSerializer

    ((name, tensor),) = MultiprocessingSerializer.deserialize(payload("fetch", version=3, note="ü" * 300))
    assert name == '{"do": "fetch", "version": 3, "note": "' + "\\u00fc" * 300 + '"}'
    assert tensor.dtype == torch.uint8 and tensor.numel() == 0


def test_addresses_are_for_loopback() -> None:
    with pytest.raises(wc.Misuse, match="no authentication"):
        SGLangEngine("http://10.0.0.1:30000")
    SGLangEngine("http://10.0.0.1:30000", insecure=True)
    with pytest.raises(wc.Misuse, match="no http or https address"):
        SGLangEngine("10.0.0.1:30000")


def failing(why: str) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(why)

    return fail
