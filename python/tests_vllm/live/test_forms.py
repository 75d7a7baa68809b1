"""What holds in every form of vLLM's interface, over HTTP. Of vLLM 0.22: `make test-vllm-early`."""

from pathlib import Path

import pytest

from .rig import Rig
from .server import STAMPS

pytestmark = pytest.mark.full

EXTENSION = ["--worker-extension-cls", "weightcast.adapters.vllm.extension.WorkerExtension"]


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(tmp_path)
    yield made
    made.end()


def test_a_server_follows_in_each_way(rig: Rig) -> None:
    fresh = rig.engine(rig.checkpoint(2), interface=False)
    expected = fresh.up().generate()[0]
    fresh.kill()
    for way, by in (("fleet", ""), ("calls", "="), ("extension", "+")):
        options = EXTENSION if by == "+" else []
        engine = rig.engine(rig.checkpoint(1), *options, interface=by != "+").up()
        loaded = engine.generate()[0]
        assert loaded != expected
        trainer = rig.trainer(way, engine, by=by)
        assert trainer.update(2) == "sent 1", way
        tokens, spans = engine.generate()
        assert tokens == expected, f"{way}: an engine that loaded this checkpoint itself says so"
        assert [span["version"] for span in spans] == (["1"] if STAMPS else []), way
        assert not engine.client().paused()
        # A trainer that goes on where this one stopped, over what an update has left.
        trainer.kill()
        assert rig.trainer(way, engine, by=by).update(1) == "sent 1", way
        assert engine.generate()[0] == loaded, way
        engine.kill()
