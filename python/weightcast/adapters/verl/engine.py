"""verl's checkpoint engine: the trainer's first rank publishes a copy of the full tensors that verl gathers,
and each rollout worker updates host memory of its own, from the trainer or from each other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from ... import _core
from ... import layout as layouts
from ...condition import available
from ...handle import Handle
from ...memory import TORCH
from ...selector import exact
from ..engine.copied import Streamed
from ..ray import Weights, rollout, serve, trainer

#: Types of torch by their safetensors names.
TYPES = {known: getattr(torch, name) for name, known in TORCH.items()}

#: One tensor of a model, by its name.
Named = tuple[str, torch.Tensor]


@CheckpointEngineRegistry.register("weightcast")
class WeightcastCheckpointEngine(CheckpointEngine):
    """A worker's part in the transfer, in the actor and in rollouts."""

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        model: str = "policy",
        servers: int = 2,
        deadline: float = 600.0,
        **options: Any,
    ) -> None:
        """`bucket_size` bounds the bytes that are gathered and not copied yet. Of `engine_kwargs.weightcast`
        come `model`, the model's name in the job; `servers`, how many reference servers there are, of which
        one acts; `deadline`, the seconds that one update may take; the others are those of
        `weightcast.open`."""
        self._bucket_size, self._is_master = bucket_size, is_master
        self._model, self._servers, self._deadline, self._options = model, servers, deadline, options
        self._weights: Weights | None = None
        self._streamed: Streamed | None = None
        self._tensors: dict[str, torch.Tensor] = {}
        # The version that was sent last, and that which is under way.
        self._sent = self._version = 0

    def prepare(self) -> dict[str, Any]:
        """What the manager asks of all workers before each update."""
        held = None if self._weights is None else self._weights.version
        return {"version": max(self._sent, held or 0), "servers": self._servers}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Starts the reference servers, which are actors of the manager, and numbers the version. There is
        nothing that workers would have to connect."""
        serve(max(told["servers"] for told in metadata))
        # A trainer that has begun anew comes after all that rollouts hold.
        version = 1 + max(told["version"] for told in metadata)
        return {"version": [version] * actor_wg_world_size}, {"version": [version] * rollout_world_size}

    def init_process_group(self, version: int) -> None:
        """Takes the number of the version which comes."""
        self._version = version

    def finalize(self) -> None:
        """Nothing: memory stays registered, and the version published until the next one, for whoever
        joins."""

    async def send_weights(
        self, weights: Iterator[Named], global_steps: int | None = None
    ) -> dict[str, float] | None:
        """Publishes what the trainer yields. Ranks other than the first take part in gathering alone."""
        if not self._is_master:
            for _ in weights:
                pass
            return None
        if self._weights is None or self._streamed is None:
            self._streamed = streamed = Streamed(iter(weights), self._bucket_size)
            self._weights = await asyncio.to_thread(
                lambda: trainer(streamed, self._model, name="actor", **self._options)
            )
        else:
            self._weights.take_back(deadline=self._deadline)
            self._streamed.next(iter(weights))
        self._weights.publish(self._version, deadline=self._deadline)
        self._sent = self._version
        return {"weightcast/version": float(self._version)}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[Named]:
        """Waits for the version, and yields its tensors once all of them are here and verified. They are
        memory that the next update changes."""
        await asyncio.to_thread(self._update)
        for name, tensor in self._tensors.items():
            yield name, tensor

    def _update(self) -> None:
        if self._weights is None:
            self._weights = rollout(self._layout, self._model, **self._options)
        weights = self._weights
        if weights.version is not None:
            weights.wait(available(self._version), deadline=self._deadline)
        weights.update(exact(self._version), deadline=self._deadline)
        if weights.version != self._version:
            raise _core.WeightcastError(
                f"version {self._version} of {self._model} was asked for, and {weights.version} is here"
            )

    def _layout(self, handle: Handle) -> layouts.Layout:
        """Memory for all that the trainer has published."""
        listed = layouts.Layout()
        for name, entry in handle.catalog(deadline=self._deadline).items():
            self._tensors[name] = torch.empty(entry.shape, dtype=TYPES[entry.dtype])
            listed.add(self._tensors[name], name)
        return listed
