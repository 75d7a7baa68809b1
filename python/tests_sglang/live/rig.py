"""Two engines of a fleet, trainers and a reference server, in processes of their own."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests_vllm.live.held import SOON, Stops
from tests_vllm.processes import Server
from weightcast.adapters.sglang import SGLangEngine

HERE = Path(__file__).parent


class Program:
    """A program that answers lines with lines."""

    def __init__(self, name: str, *arguments: Any, **environment: str) -> None:
        command = [sys.executable, HERE / name, *map(str, arguments)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=os.environ | environment)

    def tell(self, line: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def hears(self) -> str:
        assert self._child.stdout is not None
        assert select.select([self._child.stdout], [], [], SOON)[0], "it says nothing"
        return self._child.stdout.readline().strip()

    def asked(self, line: object) -> str:
        self.tell(line)
        return self.hears()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()


class Engine(Program):
    """`engine_program.py`."""

    def __init__(self, directory: Path, stops: Stops) -> None:
        super().__init__("engine_program.py", directory, WEIGHTCAST_TEST_STOPS=str(stops.directory))
        self.url = self.hears()
        assert self.url.startswith("http"), self.url

    @property
    def state(self) -> Mapping[str, Any]:
        return json.loads(self.asked(""))

    @property
    def serves(self) -> int | None:
        """The weights by which it generates; None if it does not."""
        state = self.state
        assert not state["generates"] or state["holds"] is not None, "it generates by no whole weights"
        return state["holds"] if state["generates"] else None

    def told_to_go_on(self) -> None:
        """By SGLang's own route, as by hand."""
        SGLangEngine(self.url).ask("POST", "continue_generation", {"torch_empty_cache": False})


class Rig:
    """A fleet: the first engine may be held."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = Server()
        self.stops = [Stops(directory / f"stops-{at}") for at in range(2)]
        self.engines: list[Engine | None] = [None, None]
        self._trainers = 0
        self._started: list[Program] = []

    def start(self) -> None:
        """Starts the engines that are not there."""
        for stops in self.stops:
            stops.clear()
        for at, running in enumerate(self.engines):
            if running is None:
                self.engines[at] = self._begun(Engine(self.directory, self.stops[at]))

    def kill_engine(self) -> None:
        """Kills the first."""
        first, *others = self.fleet
        first.kill()
        self.engines = [None, *others]

    @property
    def fleet(self) -> list[Engine]:
        return [engine for engine in self.engines if engine is not None]

    @property
    def serve(self) -> list[int | None]:
        return [engine.serves for engine in self.fleet]

    def trainer(self, deadline: float = 60.0) -> Program:
        """A trainer that has joined the engines."""
        self._trainers += 1
        urls = [engine.url for engine in self.fleet]
        arguments = (self.server.address, self.directory, f"trainer-{self._trainers}", *urls)
        started = self._begun(Program("trainer_program.py", *arguments, DEADLINE=str(deadline)))
        assert started.hears() == "joined"
        return started

    def _begun(self, program: Any) -> Any:
        self._started.append(program)
        return program

    def end(self) -> None:
        for program in self._started:
            program.kill()
        self.server.stop()
