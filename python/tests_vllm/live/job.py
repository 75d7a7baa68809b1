"""One engine that is tormented, and is started again when it has gone; and engines to compare it with."""

from collections.abc import Sequence
from pathlib import Path

from .rig import Rig, Stops, Trainer
from .server import VllmServer

PROMPT = (1, 2, 3)


class Fresh:
    """Engines that have loaded a checkpoint themselves, each started when it is asked first."""

    def __init__(self, directory: Path, *options: str, unpacked: bool = False) -> None:
        self._rig, self._options, self._unpacked = Rig(directory), options, unpacked
        self._engines: dict[int, VllmServer] = {}
        self._said: dict[tuple, list[int]] = {}

    def says(self, weights: int, tokens: int = 12, prompt: Sequence[int] = PROMPT) -> list[int]:
        """Tokens by these weights."""
        asked = (weights, tokens, tuple(prompt))
        if asked not in self._said:
            self._said[asked] = self._engine(weights).generate(tokens, prompt=prompt)[0]
        return self._said[asked]

    def _engine(self, weights: int) -> VllmServer:
        if weights not in self._engines:
            model = self._rig.checkpoint(weights)
            self._engines[weights] = self._rig.engine(model, *self._options, unpacked=self._unpacked).up()
        return self._engines[weights]

    def end(self) -> None:
        self._rig.end()


class Job:
    """An engine that has loaded weights 1, and its trainers."""

    def __init__(self, directory: Path, fresh: Fresh, *, unpacked: bool = False) -> None:
        """`fresh` is what is said by weights 2 and 3; see `unpacked`."""
        self.rig, self.fresh, self.unpacked = Rig(directory), fresh, unpacked
        self.stops = Stops(directory / "stops")
        self.trainers = 0
        self.start()

    def start(self) -> None:
        """Another engine, in the place of one that has gone."""
        started = self.rig.engine(self.rig.checkpoint(1), stops=self.stops, unpacked=self.unpacked)
        self.engine = started.up()

    def ready(self) -> None:
        """The engine is up, and nothing stops it."""
        self.stops.clear()
        if self.engine.is_gone():
            self.start()

    def trainer(self, **said: str | float) -> Trainer:
        self.trainers += 1
        return self.rig.trainer(f"trainer-{self.trainers}", self.engine, **said)

    def serving(self, **said: str | float) -> Trainer:
        """A trainer whose engine serves weights 2."""
        self.ready()
        trainer = self.trainer(**said)
        assert trainer.update(2).startswith("sent")
        assert self.serves(2)
        return trainer

    def serves(self, weights: int) -> bool:
        return self.engine.generate()[0] == self.fresh.says(weights)

    def end(self) -> None:
        self.rig.end()
