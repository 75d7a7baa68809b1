"""The trainer's side of vLLM's weight-transfer interface.

    from vllm.distributed.weight_transfer import ModuleSource
    from weightcast.adapters.vllm import HTTPEngine, TrainerInfo, WeightcastTrainer

    sync = WeightcastTrainer.trainer_init(
        TrainerInfo(rank=rank, server=server), client=HTTPEngine(url), source=ModuleSource(model)
    )
    for step in range(steps):
        train(model)
        sync.send_weights()
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..engine.times import EngineTimes
from ..engine.trainer import Publisher, TrainerSettings
from .forms import TrainerInitInfo, TrainerWeightTransferEngine
from .plugin import BACKEND


@dataclass
class TrainerInfo(TrainerSettings, TrainerInitInfo):
    """Who this trainer rank is (`rank`), and the fields of `TrainerSettings`. vLLM's modes to `pause`
    are `abort`, `wait` and `keep`."""

    backend: ClassVar[str] = BACKEND


class WeightcastTrainer(TrainerWeightTransferEngine):
    """Publishes a trainer's weights, and has the engines of `client` fetch and install them.

    Engines fetch while they generate (with staged landing), and are paused only to install. Every rank
    calls `trainer_init` and `send_weights`; rank 0 talks to the engines.
    """

    init_info_cls = TrainerInfo

    def __init__(self, *, client: Any, source: Any, is_sender: bool) -> None:
        # Not the base class's, whose parameters change from one vLLM to the next.
        self.client, self.source, self.is_sender = client, source, is_sender

    @classmethod
    def trainer_init(cls, *configured: Any, client: Any, source: Any = None, **named: Any) -> Self:
        """Takes `init_info`, a `TrainerInfo`; some vLLM give their own configuration before that.

        Joins the job and has the engines join: `client` is one, or a list of several. `source` is a
        torch module, vLLM's `ModuleSource` of one (both are published where they lie), what
        `weightcast.torch.gathered` makes of one, or another `WeightSource` (which is copied)."""
        init_info: TrainerInfo = named["init_info"] if "init_info" in named else configured[-1]
        trainer = cls(client=client, source=source, is_sender=init_info.is_sender)
        trainer._publisher = Publisher(init_info, rank=init_info.rank, clients=client, source=source)
        return trainer

    _publisher: Publisher

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
        """Leaves the job."""
        self._publisher.close()
