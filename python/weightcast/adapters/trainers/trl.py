"""TRL's asynchronous trainer.

    from weightcast.adapters.vllm import HTTPEngine

    trainer = AsyncGRPOTrainer(..., weight_transfer=WeightTransfer(HTTPEngine(url)))
"""

from collections.abc import Iterator
from typing import Any

import torch

from ..engine.copied import Streamed
from ..engine.trainer import Publisher, TrainerSettings


class WeightTransfer:
    """Has live engines take the weights that TRL's trainer hands out, as its `weight_transfer`.

    TRL gathers each tensor to the main process and hands it out there, adapters merged: they are copied into
    host memory, which engines fetch from while they generate. Engines are paused only for the moment in which
    they install, so `pause` and `resume`, which TRL calls around all of that, do nothing. Versions are 1, 2,
    and so on: the model versions of TRL.

    Where every rank is to publish its own shard in place, use the callback for Transformers instead
    (`weightcast.adapters.trainers.transformers.PublishSteps`, with `clients=`), and here an object whose
    methods only exhaust the iterator.
    """

    def __init__(self, clients: Any, settings: TrainerSettings | None = None) -> None:
        """`clients` is an engine, or a list of several."""
        self._clients, self._settings = clients, settings or TrainerSettings()
        self._streamed: Streamed | None = None
        self._publisher: Publisher | None = None

    @property
    def version(self) -> int:
        """The version that was sent last; 0 before the first."""
        return 0 if self._publisher is None else self._publisher.version

    def init_weight_transfer(self) -> None:
        """Nothing: engines join with the first version, when it is known what there is."""

    def pause(self) -> None:
        """Nothing: engines generate while they fetch."""

    def resume(self) -> None:
        """Nothing: engines have gone on."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Copies what TRL hands out, publishes that as the next version, and has the engines fetch and
        install it. What raises leaves engines with the version that they have."""
        if self._streamed is None:
            self._streamed = Streamed(iter(iterator), self._settings.budget)
        else:
            self._streamed.next(iter(iterator))
        if self._publisher is None:
            self._publisher = Publisher(
                self._settings, rank=0, clients=self._clients, source=self._streamed
            )
        self._publisher.send()

    def destroy(self) -> None:
        """Leaves the job."""
        publisher, self._publisher, self._streamed = self._publisher, None, None
        if publisher is not None:
            publisher.close()
