"""All measures, one after the other: a process for each way, whose measures follow one another."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .processes import end_below
from .settings import Settings
from .ways import entry

TRIES = 2
"""Measures of a way that may fail one after the other before the rest is not tried."""
GRACE = 5.0
"""Seconds in which a host ends what it has started."""


SKIPPED = {"not_run": f"not tried: {TRIES} measures before it failed"}


class WrongBytes(Exception):
    """A reader does not hold what was sent."""


class Course:
    """A run's measures; `say` is told of each."""

    def __init__(self, settings: Settings, say: Callable[[dict[str, Any]], None]) -> None:
        self.settings, self.say = settings, say
        self.measures: list[dict[str, Any]] = []

    def run(self) -> None:
        """All of them. What cannot run is a measure with its reason."""
        for way in self.settings.ways:
            with host(way) as running:
                failed = 0
                for case, readers in self.settings.measures:
                    came = SKIPPED if failed == TRIES else self._measure(running, way, case, readers)
                    failed = min(TRIES, failed + 1) if "not_run" in came else 0
                    self.measures.append({"way": way, "case": case, "readers": readers, **came})
                    self.say(self.measures[-1])
                    if "wrong" in came:
                        raise WrongBytes(came["wrong"])

    def _measure(self, running: "Host", way: str, case: str, readers: int) -> dict[str, Any]:
        settings = self.settings
        return running.do(
            {
                "way": way,
                "case": case,
                "readers": readers,
                "repeats": settings.repeats,
                "enough": settings.enough,
                "timeout": settings.timeout,
                "disk": settings.disk,
            }
        )


class Host:
    """The process of a way."""

    def __init__(self, way: str, log: Any) -> None:
        chosen = entry(way)
        folder = str(Path(__file__).parent.parent)
        self.log = log
        self.process = subprocess.Popen(
            [chosen.python(), "-m", f"{__package__}.host", str(os.getpid())],
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}  # the processes share the cores
            | dict(chosen.variables)
            | {"PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others
        )

    def do(self, task: dict[str, Any]) -> dict[str, Any]:
        """A measure; why there is none, if the host cannot."""
        assert self.process.stdin and self.process.stdout
        with suppress(BrokenPipeError):  # that it ended is heard below
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
        if line := self.process.stdout.readline():
            came: dict[str, Any] = json.loads(line)
            return came
        self.log.seek(0)
        last = self.log.read().decode(errors="replace").strip().splitlines()[-1:] or ["without a word"]
        return {"not_run": f"its process ended: {last[0]}"}

    def end(self) -> None:
        """It, and all that it has started."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        end_below()


@contextmanager
def host(way: str) -> Iterator[Host]:
    """A host; it is gone afterwards."""
    with tempfile.TemporaryFile() as log:
        running = Host(way, log)
        try:
            yield running
        finally:
            running.end()
