"""The trainer's side of SGLang engines.

    from weightcast.adapters.sglang import SGLangEngine, SGLangTrainer, TrainerInfo

    sync = SGLangTrainer(TrainerInfo(rank=rank, server=server), client=SGLangEngine(url), source=model)
    for step in range(steps):
        train(model)
        sync.send_weights()
"""

from dataclasses import dataclass
from typing import Any

from ..engine.times import EngineTimes
from ..engine.trainer import Publisher, TrainerSettings


@dataclass(kw_only=True)
class TrainerInfo(TrainerSettings):
    """Who this trainer rank is, and the fields of `TrainerSettings`. SGLang's modes to `pause` are
    `abort`, `retract` and `in_place`."""

    rank: int = 0


class SGLangTrainer:
    """Publishes a trainer's weights, and has the engines of `client` fetch and install them.

    Engines fetch while they generate (with staged landing), and are paused only to install. Every rank
    makes one and calls `send_weights`; rank 0 talks to the engines.
    """

    def __init__(self, info: TrainerInfo, *, client: Any, source: Any) -> None:
        """Joins the job and has the engines join: `client` is one `SGLangEngine`, or a list of several.
        `source` is a torch module, published where it lies."""
        self._publisher = Publisher(info, rank=info.rank, clients=client, source=source)

    @property
    def version(self) -> int:
        """The version published last."""
        return self._publisher.version

    @property
    def times(self) -> list[EngineTimes]:
        """How long each engine took for the last version, fetch and pause apart: on rank 0."""
        return self._publisher.times

    def send_weights(self, version: int | None = None) -> int:
        """Publishes the weights as `version` (by default the next one), has the engines fetch and
        install them, and returns the version. When it returns or raises, the weights may be changed."""
        return self._publisher.send(version)

    def shutdown(self) -> None:
        """Leaves the job. Engines keep what they hold."""
        self._publisher.close()
