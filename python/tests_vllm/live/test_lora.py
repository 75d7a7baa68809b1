"""Live engines take versions of LoRA adapters into slots by name: `LLM` in one process and on two tensor-parallel
workers, and a server over HTTP."""

import json
import subprocess
import sys
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import weightcast as wc
from weightcast.adapters.engine import engines
from weightcast.adapters.vllm import Adapter, HTTPEngine, TrainerInfo, WeightcastTrainer

from .adapters import RANK, become, peft_model, saved
from .rig import Rig, Stops
from .server import HERE, SOON, VllmServer

pytestmark = pytest.mark.full

OPTIONS = [
    "--enable-lora", "--max-loras", "2", "--max-lora-rank", str(RANK), "--tensor-parallel-size", "2",
]  # fmt: skip


@pytest.mark.parametrize("way", ["in_process", "tp2"])
def test_an_offline_engine_takes_adapters(way: str) -> None:
    command = [sys.executable, HERE / "lora_program.py", way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * SOON)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    said, expected = found["said"], found["expected"]
    assert len({str(each[0]) for each in expected.values()}) == len(expected)

    def equal(*pairs: tuple[str, str]) -> None:
        for ours, fresh in pairs:
            assert said[ours][:2] == expected[fresh][:2], ours

    equal(("base", "base"), ("one 1", "1"), ("two 2", "2"), ("one 3", "3"), ("one 3 by a request of 1", "3"))
    equal(("base on the next base", "base on the next base"), ("one 1 on the next base", "1 on the next base"))
    # The cache has been used where nothing has changed.
    for again, once in (("one 1 again", "one 1"), ("one 3 again", "one 3"), ("one still 3", "one 3")):
        assert said[again][0] == said[once][0] and said[again][2] > 0, again
    for again, once in (("two 2 again", "two 2"), ("base again", "base")):
        assert said[again][0] == said[once][0], again
    assert "was trained on version 7 of its base, and this engine holds the weights that" in said["refused"]
    assert "take them out first" in said["base refused"]
    assert "and this engine holds version 2 of its base" in said["old base refused"]


def test_a_sharded_trainer_publishes_an_adapter_whole() -> None:
    command = [sys.executable, HERE / "lora_sharded.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert done.returncode == 0 and done.stdout.strip() == "whole", done.stderr[-4000:]


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(tmp_path)
    yield made
    made.end()


class Sender:
    """The trainer of an adapter, in this process."""

    def __init__(self, rig: Rig, name: str, engine: VllmServer) -> None:
        self.model = peft_model(rig.model)
        self.adapter = Adapter(self.model)
        self.sync = WeightcastTrainer.trainer_init(
            TrainerInfo(rank=0, server=rig.server.address, model=name, pause="keep"),
            client=HTTPEngine(engine.url, timeout=SOON),
            source=self.adapter,
        )

    def send(self, version: int) -> None:
        become(self.model, version)
        self.sync.send_weights()


def from_directories(rig: Rig) -> dict[int, list[int]]:
    """What a server says of versions that it has loaded from directories."""
    fresh, held = rig.engine(rig.checkpoint(1), *OPTIONS).up(), peft_model(rig.model)
    said = {0: fresh.generate()[0]}
    for version in (1, 2, 3):
        path = saved(held, version, rig.directory / f"adapter-{version}")
        HTTPEngine(fresh.url).load_lora(f"a{version}", str(path))
        said[version] = fresh.generate(model=f"a{version}")[0]
    fresh.kill()
    return said


def test_a_server_takes_adapters_by_name(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = from_directories(rig)
    assert len(set(map(str, expected.values()))) == 4
    stops = Stops(rig.directory / "stops")
    engine = rig.engine(rig.checkpoint(1), *OPTIONS, "--enable-server-load-tracking", stops=stops).up()
    one, two = Sender(rig, "one", engine), Sender(rig, "two", engine)
    one.send(1)
    two.send(2)

    def serves(version: int, name: str) -> bool:
        return engine.generate(model=name)[0] == expected[version]

    assert serves(1, "one") and serves(2, "two") and serves(0, "m")
    one.send(3)
    assert serves(3, "one") and serves(2, "two") and serves(0, "m")

    # One of two workers fails: the other one takes back what it has loaded, and the engine goes on.
    client, slot = engine.client(), engine.client().slot("one")
    monkeypatch.setattr(engines, "TRIES", 1)
    stops.fail_once("before-put")
    with pytest.raises(wc.WeightcastError, match="before-put"):
        one.send(1)
    assert serves(3, "one") and serves(2, "two") and not client.paused()
    assert [state.installed for state in slot.states()] == [2, 2]
    # Asked again, as a trainer asks by itself.
    monkeypatch.undo()
    stops.fail_once("before-put")
    one.send(1)
    assert serves(1, "one") and serves(2, "two")

    # Trained on another base.
    one.adapter.base = 7
    with pytest.raises(wc.WeightcastError, match="was trained on version 7 of its base"):
        one.send(2)
    assert serves(1, "one") and not client.paused()

    # Another trainer has its turn.
    client.take("another", SOON)
    with pytest.raises(wc.WeightcastError, match="another update of this engine is under way .another.; try again"):
        two.send(1)
    assert serves(2, "two") and not client.paused()
    client.give_back("another")

    slot.unload()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        engine.generate(model="one")
    slot.unload()
    one.adapter.base = None
    one.send(2)
    assert serves(2, "one") and serves(2, "two")

    # A request that the server accepts before the adapter is taken out, and that the engine runs afterwards.
    client.pause()
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(engine.generate, model="one")
        engine.accepted(1)
        slot.unload()
        assert client.paused(), "it was before"
        client.resume()
        assert late.result()[0] == expected[0]
    one.send(2)
    assert serves(2, "one") and serves(2, "two")

    # A trainer that was started again counts from 1.
    one.sync.shutdown()
    again = Sender(rig, "one", engine)
    again.send(3)
    assert serves(3, "one")
    engine.post("sleep?level=1")
    engine.post("wake_up")
    assert serves(3, "one") and serves(2, "two")


def test_a_server_that_takes_no_adapters_says_what_to_do(rig: Rig) -> None:
    engine = rig.engine(rig.checkpoint(1)).up()
    with pytest.raises(wc.WeightcastError, match="start it with --enable-lora"):
        Sender(rig, "one", engine)
    assert engine.generate()[0]
