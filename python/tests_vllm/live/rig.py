"""A trainer, engines and a reference server in processes of their own, and the places where tests hold them."""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..processes import Server
from .held import SOON, Stops
from .server import HERE, VllmServer
from .weights import Model


class Trainer:
    """`trainer_program.py`."""

    def __init__(
        self, server: Server, directory: Path, name: str, urls: list[str], rank: Mapping[str, str] = {}
    ) -> None:
        command = [sys.executable, HERE / "trainer_program.py", server.address, directory, name, *urls]
        # vLLM's own log goes to what tests hear.
        quiet = {"OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {**quiet, **rank}
        )

    def joined(self) -> "Trainer":
        assert self.hears() == "joined"
        return self

    def send(self, weights: int) -> None:
        """Has it update the engines; `hears` says how that ended."""
        self._child.stdin.write(f"{weights}\n")
        self._child.stdin.flush()

    def hears(self) -> str:
        assert select.select([self._child.stdout], [], [], SOON)[0], "the trainer says nothing"
        return self._child.stdout.readline().strip()

    def update(self, weights: int) -> str:
        self.send(weights)
        return self.hears()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        self._child.stdin.close()
        self._child.stdout.close()


class Reachable(Protocol):
    """What trainers reach at an address: an engine, or what lies before one."""

    url: str


class Rig:
    """Everything, in one directory, ended together."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.model = Model(directory / "model")
        self.server = Server()
        self._ending: list[Any] = []
        self._engines = 0

    def checkpoint(self, weights: int) -> Path:
        """The directory of a model with a checkpoint."""
        model = Model(self.directory / f"checkpoint-{weights}")
        model.save(weights)
        return model.directory

    def engine(
        self,
        model: Path,
        *options: str,
        stops: Stops | None = None,
        interface: bool = True,
        unpacked: bool = False,
    ) -> VllmServer:
        """With `interface`, it is started with our weight-transfer backend; see `unpacked`."""
        self._engines += 1
        log = self.directory / f"engine-{self._engines}.log"
        if interface:
            options = (*options, "--weight-transfer-config", '{"backend": "weightcast"}')
        held = None if stops is None else stops.directory
        started = VllmServer(model, log, *options, stops=held, unpacked=unpacked)
        self._ending.append(started)
        return started

    def trainer(
        self, name: str, *engines: Reachable, by: str = "", extended: Sequence[VllmServer] = (), **said: str | float
    ) -> Trainer:
        """Of engines, updated as the mark `by` of the trainer's program says, and of those that have the worker
        extension; `said` is what the program's environment says, in small letters."""
        urls = [*(f"{by}{engine.url}" for engine in engines), *(f"+{engine.url}" for engine in extended)]
        modes = {key.upper(): str(value) for key, value in said.items()}
        started = Trainer(self.server, self.directory / "model", name, urls, modes)
        self._ending.append(started)
        return started.joined()

    def sharded_trainer(self, ranks: int, *engines: VllmServer) -> list[Trainer]:
        """The ranks of a trainer sharded by FSDP2; rank 0 talks to the engines."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        urls = [engine.url for engine in engines]
        started = [
            Trainer(self.server, self.directory / "model", "sharded", urls, common | {"RANK": str(rank)})
            for rank in range(ranks)
        ]
        self._ending += started
        return [rank.joined() for rank in started]

    def end(self) -> None:
        for each in self._ending:
            each.kill()
        self.server.stop()
