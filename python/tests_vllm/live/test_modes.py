"""The other ways in which vLLM runs: `LLM` in one process, in two, with two tensor-parallel workers; started from
peers without a checkpoint; with bytes that land in place."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from .rig import Rig, Stops
from .server import HERE, SOON

pytestmark = pytest.mark.full


@pytest.mark.parametrize("way", ["in_process", "separate", "tp2"])
def test_an_offline_engine_follows_its_trainer(way: str) -> None:
    command = [sys.executable, HERE / "program.py", way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SOON)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["updated 2"] == said["handed out 2"] == said["fresh 2"]
    assert said["updated 3"] == said["fresh 3"]
    assert said["updated 1"] == said["loaded"]
    assert len({str(value) for value in said.values()}) == 3


def test_an_engine_starts_from_a_peer_without_a_checkpoint(rig: Rig) -> None:
    engine = rig.engine(rig.checkpoint(1)).up()
    trainer = rig.trainer("trainer", engine)
    assert trainer.update(2).startswith("sent")
    expected = engine.generate()[0]
    bare = rig.directory / "bare"
    bare.mkdir()
    shutil.copy(rig.checkpoint(1) / "config.json", bare)
    extra = json.dumps({"server": rig.server.address})
    late = rig.engine(bare, "--load-format", "weightcast", "--model-loader-extra-config", extra).up()
    assert late.generate()[0] == expected
    # From now on both follow.
    both = rig.trainer("both", engine, late)
    assert both.update(3).startswith("sent")
    assert late.generate() == engine.generate()
    assert late.generate()[0] != expected


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(tmp_path)
    yield made
    made.end()


def test_an_engine_that_slept_serves_nothing_but_whole_weights(rig: Rig) -> None:
    stops = Stops(rig.directory / "stops")
    engine = rig.engine(rig.checkpoint(1), stops=stops).up()
    trainer = rig.trainer("trainer", engine)
    client = engine.client()

    # Joined, nothing fetched: what the engine loaded by itself is gone, and nothing can bring it back.
    engine.post("sleep?level=2")
    engine.post("wake_up")
    (state,) = client.states()
    assert "discarded" in state.incomplete and state.fetched is None
    assert trainer.update(2).startswith("sent")
    said = engine.generate()

    # With a version beside the parameters, waking up installs it.
    engine.post("sleep?level=2")
    assert "discarded" in client.states()[0].incomplete
    engine.post("wake_up?tags=kv_cache")
    assert "discarded" in client.states()[0].incomplete
    stops.hold("within-install")
    waking = Thread(target=engine.post, args=("wake_up?tags=weights",))
    waking.start()
    stops.reached("within-install")
    stops.clear()
    waking.join()
    assert client.states()[0].incomplete is None
    assert engine.generate() == said
    assert trainer.update(3).startswith("sent")


def test_an_engine_without_the_interface_is_updated_through_an_extension(rig: Rig) -> None:
    extension = ["--worker-extension-cls", "weightcast.adapters.vllm.extension.WorkerExtension"]
    engine = rig.engine(rig.checkpoint(1), *extension, interface=False).up()
    follower = rig.engine(rig.checkpoint(1)).up()
    loaded = engine.generate()[0]
    trainer = rig.trainer("trainer", follower, extended=[engine])
    assert trainer.update(2) == "sent 1"
    tokens, spans = engine.generate()
    assert (tokens, spans) == follower.generate()
    assert tokens != loaded and spans[0]["version"] == "1"


def test_every_rank_of_a_sharded_trainer_sends(rig: Rig) -> None:
    engine = rig.engine(rig.checkpoint(1))
    fresh = rig.engine(rig.checkpoint(2))
    expected = fresh.up().generate()[0]
    fresh.kill()
    ranks = rig.sharded_trainer(2, engine.up())
    for rank in ranks:
        rank.send(2)
    assert [rank.hears() for rank in ranks] == ["sent 1", "sent 1"]
    assert engine.generate()[0] == expected
    # A rank that dies takes no engine with it.
    ranks[1].kill()
    ranks[0].send(3)
    assert ranks[0].hears().startswith("failed")
    assert engine.generate()[0] == expected


def test_workers_that_fail_apart_agree(rig: Rig) -> None:
    stops, two = Stops(rig.directory / "stops"), ["--tensor-parallel-size", "2"]
    engine = rig.engine(rig.checkpoint(1), *two, stops=stops)
    fresh = rig.engine(rig.checkpoint(2), *two)
    expected = fresh.up().generate()[0]
    fresh.kill()
    trainer = rig.trainer("trainer", engine.up())
    client = engine.client()
    assert trainer.update(2).startswith("sent")
    assert engine.generate()[0] == expected and len(client.states()) == 2

    # One worker fails in each step; vLLM would take its peer's answer for one to the next call.
    for place in ("before-fetch", "after-fetch"):
        stops.fail_once(place)
        told = trainer.update(3)
        assert told.startswith("failed") and place in told
        assert engine.generate()[0] == expected
        assert {state.incomplete for state in client.states()} == {None}
    for place in ("before-install", "within-install", "after-install"):
        stops.fail_once(place)
        assert trainer.update(2).startswith("sent"), place
        assert engine.generate()[0] == expected
        assert len({state.installed for state in client.states()}) == 1

    stops.fail("within-install")
    assert trainer.update(3).startswith("failed")
    assert all(state.incomplete is not None for state in client.states())
    assert client.paused()
    stops.clear()
    assert trainer.update(2).startswith("sent")
    assert engine.generate()[0] == expected
