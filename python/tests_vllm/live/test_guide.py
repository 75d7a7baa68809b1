"""What the guide has a user add to a loop and to an engine: it works as it stands, and is short."""

import re
import subprocess
import sys

import pytest

from .job import Job
from .server import HERE, SOON

GUIDE = (HERE.parents[2] / "docs/guides/vllm.md").read_text()
#: Lines of a loop that has no weightcast.
ITS_OWN = ("for step in range(steps):", "    train(model)")

AROUND = """
import sys
sys.path.insert(0, {python!r})
import tests_vllm
from pathlib import Path
from tests_vllm.live.weights import Held, Model

rank, urls, steps = 0, [{url!r}], 1
checkpoints = Model(Path({directory!r}))
model = Held(checkpoints.values(0))


def train(model):
    model.become(checkpoints.values(2))


"""


def block(section: str, language: str) -> str:
    """The first block of code of a section."""
    text = GUIDE.split(f"\n## {section}\n")[1]
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]


def test_a_user_adds_fifteen_lines_at_most() -> None:
    trainer = [line for line in block("The trainer", "python").splitlines() if line and line not in ITS_OWN]
    engine = [line for line in block("The engine", "").splitlines() if "weightcast" in line or "DEV_MODE" in line]
    assert len(engine) == 3 and 5 < len(trainer + engine) <= 15


@pytest.mark.full
def test_the_trainer_of_the_guide_updates_an_engine(job: Job) -> None:
    address = job.rig.server.address
    assert "--weight-transfer-config '{\"backend\": \"weightcast\"}'" in block("The engine", "")
    text = block("The trainer", "python").replace("http://10.0.0.1:7117", address)
    assert address in text
    python, directory = str(HERE.parents[1]), str(job.rig.directory / "model")
    around = AROUND.format(python=python, url=job.engine.url, directory=directory)
    done = subprocess.run([sys.executable, "-c", around + text], capture_output=True, text=True, timeout=SOON)
    assert done.returncode == 0, done.stderr[-4000:]
    tokens, spans = job.engine.generate()
    assert tokens == job.fresh.says(2)
    assert spans == [{"version": "1", "start": 0, "end": len(tokens)}]
