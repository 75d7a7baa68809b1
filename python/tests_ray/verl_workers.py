"""verl's own workers, on CPUs: its actor worker with its FSDP engine, and its checkpoint engine's workers in
front of an inference engine that only keeps what it is given."""

from typing import Any

import torch
from verl.checkpoint_engine import CheckpointEngineWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout import BaseRollout

# verl has registered it for GPUs and NPUs alone.
EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(FSDPEngineWithLMHead)


class Actor(ActorRolloutRefWorker):
    """verl's, and what a test asks of it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Otherwise verl asks for gloo twice, once for its device.
        initialize_global_process_group_ray(backend="cpu:gloo")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def step(self) -> None:
        """A step of verl's own optimizer."""
        engine = self.actor.engine
        with engine.train_mode():
            tokens = torch.arange(8)[None]
            engine.module(input_ids=tokens).logits.float().square().mean().backward()
            engine.optimizer_step()
            engine.optimizer_zero_grad()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def full(self) -> dict[str, torch.Tensor]:
        """What verl hands out."""
        return {name: tensor.clone() for name, tensor in self.actor.engine.get_per_tensor_param()[0]}


class Keeps(BaseRollout):
    """An inference engine's side of verl: keeps what it is given."""

    def __init__(self, *arguments: Any, replica_rank: int = 0, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.replica_rank, self.is_leader_rank = replica_rank, True
        self.given: dict[str, torch.Tensor] = {}
        self.steps: list[int | None] = []

    async def resume(self, tags: list[str]) -> None:
        pass

    async def release(self) -> None:
        pass

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **_: Any
    ) -> None:
        assert wire_format == "named_tensors"
        self.given = {name: tensor.clone() async for name, tensor in weights}
        self.steps.append(global_steps)


class Rollout(CheckpointEngineWorker):
    """verl's, with that engine, and what a test asks of it."""

    def __init__(self, rollout_config: Any, model_config: Any, replica_rank: int = 0) -> None:
        engine = Keeps(rollout_config, model_config, None, replica_rank=replica_rank)
        super().__init__(rollout_config, model_config, server_adapter=engine)

    def given(self) -> tuple[dict[str, torch.Tensor], list[int | None]]:
        return self.server_adapter.given, self.server_adapter.steps


class Replica:
    """As much of a `RolloutReplica` as the manager calls."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers
        #: What the manager has asked of it.
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def asked(*_: Any, **__: Any) -> None:
            self.asked.append(name)

        return asked
