"""One tensor-parallel rank of an SGLang engine, as a worker of weightcast: its part in the job, its gate."""

import json
from dataclasses import asdict
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel
from torch import nn

from ... import _core
from ..engine import EngineShard, Settings
from ..engine.exchange import exchange
from ..engine.orders import Orders
from .identity import refuse, replica_of
from .model import read


class ModelWorker:
    """What weightcast keeps beside a model of this process. All ranks make the same calls."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._shard: EngineShard | None = None
        #: The gate of this rank, once it has joined a job.
        self.orders: Orders | None = None

    def join(self, settings: dict[str, Any], instance: str, life: int) -> None:
        """Joins the job. A second call with the same settings (of a trainer that was started again) changes
        nothing; with others, this worker leaves the job and joins the other. `life` is drawn by the caller,
        for orders to come."""
        asked = Settings(**settings)
        if self._shard is None or self._shard.settings != asked or not self._shard.answers():
            self.leave()
            refuse(asked)
            replica = replica_of(asked, instance)
            self._shard = EngineShard(
                asked, replica, lambda catalog: read(self._model, catalog, **asked.reading())
            )
        if self.orders is None:
            self.orders = Orders(self, life)

    def agree(self, life: int) -> None:
        """Ranks of one engine have one life: those of several begin another one, `life`. All ranks call, also
        those that have not joined."""
        own = None if self.orders is None else self.orders.life
        lives = {json.loads(text) for text in exchange(json.dumps(own), get_parallel().tp_group.cpu_group)}
        if len(lives) > 1 and self.orders is not None:
            self.orders.renew(life)

    def shard(self) -> EngineShard:
        """This worker's part in the job. Raises before it has joined one."""
        if self._shard is None:
            raise _core.Misuse(
                "this engine has not joined a job: it was started again, or never asked to join"
            )
        return self._shard

    def before_fetch(self) -> None:
        """Nothing keeps this engine from a fetch."""

    def before_install(self) -> None:
        """A batch that was under way when the engine paused still reads the parameters."""
        _synchronise()

    def after_install(self) -> None:
        """The parameters are as they were written once the device has done so."""
        _synchronise()

    def begin(self) -> None:
        """Begins an update without orders."""
        self.shard().begin()

    def fetch(self, **info: Any) -> None:
        """Fetches a version without orders."""
        try:
            self.shard().fetch(**info)
        finally:
            self._changed_by_calls()

    def install(self) -> None:
        """Installs a version without orders."""
        self.before_install()
        try:
            self.shard().install()
            self.after_install()
        finally:
            self._changed_by_calls()

    def order(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """An order of a fleet's driver came in: the answer of `Orders.order`; None before this worker has
        joined."""
        return None if self.orders is None else self.orders.order(order)

    def performed(self, attempt: dict[str, Any], failure: str | None) -> dict[str, Any] | None:
        """The engine has taken a step: the answer of `Orders.performed`."""
        return None if self.orders is None else self.orders.performed(attempt, failure)

    def release(self) -> None:
        """What this worker holds counts as what its engine is to serve."""
        self.shard()
        self._changed_by_calls()

    def leave(self) -> None:
        """Leaves the job. The parameters stay as they are."""
        if self.orders is not None:
            self.orders.close()
        if self._shard is not None:
            self._shard.close()
        self.orders = self._shard = None

    def serves(self) -> bool:
        """Whether the engine may generate, as far as this worker is concerned."""
        if self.orders is not None:
            return self.orders.may_serve()
        return self._shard is None or self._shard.state.incomplete is None

    def state(self) -> dict[str, Any] | None:
        """`EngineState`, once this worker has joined."""
        return None if self._shard is None else asdict(self._shard.state)

    def _changed_by_calls(self) -> None:
        """An update without orders has changed what this worker holds, or has tried to."""
        if self.orders is not None:
            self.orders.renew()


def _synchronise() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
