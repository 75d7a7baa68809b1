"""A vLLM server over HTTP follows its trainer, and outlives the trainer. The rest: `live/test_*.py`."""

from pathlib import Path

import pytest

from .live.rig import Rig, Stops


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(tmp_path)
    yield made
    made.end()


def test_a_server_follows_its_trainer_and_outlives_it(rig: Rig) -> None:
    stops = Stops(rig.directory / "stops")
    engine = rig.engine(rig.checkpoint(1), stops=stops)
    fresh = rig.engine(rig.checkpoint(2))
    expected = fresh.up().generate()[0]
    fresh.kill()
    first = engine.up().generate()
    assert first[0] != expected
    assert [span["version"] for span in first[1]] == ["default"]

    trainer = rig.trainer("first", engine)
    assert trainer.update(2) == "sent 1"
    tokens, spans = engine.generate()
    assert tokens == expected, "an engine that loaded this checkpoint itself says so"
    assert spans == [{"version": "1", "start": 0, "end": len(tokens)}]

    # The trainer dies while the engine fetches: the engine is wholly old, and serves.
    stops.hold("before-fetch")
    trainer.send(3)
    stops.reached("before-fetch")
    trainer.kill()
    stops.clear()
    assert engine.generate() == (tokens, spans)

    # Another one takes over, though the first has left an update open.
    assert rig.trainer("second", engine).update(1) == "sent 1"
    assert engine.generate()[0] == first[0]
