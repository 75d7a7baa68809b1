"""One rank of a loop that a library runs, with a callback that publishes.

Arguments: rank, world size, the loop's name, the server, a directory for what is expected, and a port for the ranks.
The environment variable `DEVICE` says where the model lies: `cpu` or `cuda`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import adam
from torch.utils.data import Dataset

from weightcast.adapters.trainers.steps import Steps

from ..models import DEADLINE, STEPS, batch, build, save

DEVICE = os.environ.get("DEVICE", "cpu")


class Data(Dataset):
    """Some samples."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {name: tensor[0] for name, tensor in batch(at).items()}


class Watch:
    """Writes down what is published, and waits until engines have it."""

    def __init__(self, job: str, directory: str) -> None:
        self.job, self.directory = job, directory
        self.rank = int(os.environ["RANK"])
        #: How often the optimizer has written.
        self.steps = 0

    def note(self, model: Any, version: int) -> None:
        """Before it is published."""
        save(model, self.directory, self.job, version, self.rank)

    def guard(self, steps: Steps) -> None:
        """Has each step of the optimizer look whether anybody may read what it writes. Of weights on a GPU a copy
        is read."""
        write, copied = adam.adam, DEVICE == "cuda"

        def guarded(*given: Any, **named: Any) -> Any:
            published = steps.handle is not None and steps.handle.version is not None
            assert copied or not published, "published while the optimizer writes"
            self.steps += 1
            return write(*given, **named)

        adam.adam = guarded

    def wait(self, steps: Steps, version: int) -> None:
        """Until an engine has it. Ranks with nothing to publish wait for the others."""
        if steps.handle is not None:
            assert steps.handle.version == version
            if "fsdp2" in self.job:
                assert steps.handle.replica.num_shards == dist.get_world_size(), steps.handle.replica
            steps.handle.wait(lambda held: f"done-{version}" in held.get(version, ()), deadline=DEADLINE)
        if dist.is_initialized():
            dist.barrier()


def transformers_trainer(job: str, server: str, directory: str, **sharded: Any) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from weightcast.adapters.trainers.transformers import PublishSteps

    watch = Watch(job, directory)

    class Note(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            watch.note(trainer.model, 0)

        def on_optimizer_step(self, args, state, control, **_):
            watch.note(trainer.model, state.global_step + 1)

    class Wait(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            watch.wait(publish.steps, 0)

        def on_optimizer_step(self, args, state, control, **_):
            watch.wait(publish.steps, state.global_step + 1)

    publish = PublishSteps(job, server=server)
    arguments = TrainingArguments(
        output_dir=directory, use_cpu=DEVICE == "cpu", max_steps=STEPS, per_device_train_batch_size=1,
        gradient_accumulation_steps=2, report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=0.1,
        **sharded,
    )  # fmt: skip
    trainer = Trainer(build(), arguments, train_dataset=Data(), callbacks=[Note(), publish, Wait()])
    watch.guard(publish.steps)
    trainer.train()
    assert publish.steps.handle is None and watch.steps >= STEPS


def shard(model: Any) -> Any:
    """As FSDP2 cuts a model."""
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def accelerate(job: str, server: str, directory: str, sharded: bool = False, **by_itself: Any) -> None:
    from accelerate import Accelerator

    from weightcast.adapters.trainers.accelerate import publish_steps

    accelerator = Accelerator(cpu=DEVICE == "cpu", gradient_accumulation_steps=2, **by_itself)
    watch, model = Watch(job, directory), build()
    if sharded:  # Accelerate itself does that on devices alone
        model = shard(model)
        optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters(), lr=0.1))
    else:
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    inner, count = optimizer.optimizer, 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1
        watch.note(model, count)

    # Hooks run in the order in which they came.
    inner.register_step_post_hook(note)
    watch.note(model, 0)
    with publish_steps(model, optimizer, job, server=server) as steps:
        waiting = inner.register_step_post_hook(lambda *_: watch.wait(steps, count))
        watch.guard(steps)
        watch.wait(steps, 0)
        for at in range(2 * STEPS):
            with accelerator.accumulate(model):
                here = {name: tensor.to(accelerator.device) for name, tensor in batch(at).items()}
                accelerator.backward(model(**here).loss)
                optimizer.step()
                optimizer.zero_grad()
    waiting.remove()
    assert steps.handle is None and count == STEPS == watch.steps
    assert not inner._optimizer_step_pre_hooks and len(inner._optimizer_step_post_hooks) == 1


def lightning(job: str, server: str, directory: str, sharded: bool = False) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import ModelParallelStrategy

    from weightcast.adapters.trainers.lightning import PublishSteps

    watch, world = Watch(job, directory), int(os.environ["WORLD_SIZE"])

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = build()

        def configure_model(self) -> None:
            if sharded and not hasattr(self.inner.lm_head.weight, "full_tensor"):
                shard(self.inner)

        def training_step(self, batch: Any, at: int) -> torch.Tensor:
            return self.inner(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    class Note(pl.Callback):
        seen = 0

        def on_train_start(self, trainer, module):
            watch.note(module.inner, 0)

        def on_train_batch_end(self, trainer, module, *_):
            if trainer.global_step > self.seen:
                self.seen = trainer.global_step
                watch.note(module.inner, trainer.global_step)

    class Wait(pl.Callback):
        seen = 0

        def on_train_start(self, trainer, module):
            watch.wait(publish.steps, 0)

        def on_train_batch_end(self, trainer, module, *_):
            if trainer.global_step > self.seen:
                self.seen = trainer.global_step
                watch.wait(publish.steps, trainer.global_step)

    publish = PublishSteps(job, server=server, of=lambda module: getattr(module, "module", module).inner)
    trainer = pl.Trainer(
        accelerator=DEVICE, devices=world, max_steps=STEPS,
        strategy=ModelParallelStrategy() if sharded else "ddp" if world > 1 else "auto",
        accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=directory, callbacks=[Note(), publish, Wait()],
        use_distributed_sampler=False,
    )  # fmt: skip
    watch.guard(publish.steps)
    trainer.fit(Module(), torch.utils.data.DataLoader(Data(), batch_size=1))
    assert publish.steps.handle is None and watch.steps >= STEPS


def accelerate_fsdp2(job: str, server: str, directory: str) -> None:
    """Accelerate shards by itself, which it does on devices alone."""
    from accelerate import FullyShardedDataParallelPlugin

    accelerate(job, server, directory, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))


def trainer_fsdp2(job: str, server: str, directory: str) -> None:
    """The same by the options of Transformers' trainer."""
    transformers_trainer(job, server, directory, fsdp="full_shard", fsdp_config={"fsdp_version": 2})


#: How each loop runs, by how many ranks, and which replicas publish.
LOOPS = {
    "trainer": (transformers_trainer, {1: {"trainer"}, 2: {"trainer"}}),
    "accelerate": (accelerate, {1: {"trainer"}, 2: {"trainer"}}),
    "accelerate-fsdp2": (lambda *given: accelerate(*given, sharded=True), {2: {"trainer"}}),
    "lightning-fsdp2": (lambda *given: lightning(*given, sharded=True), {2: {"trainer"}}),
    "lightning": (lightning, {1: {"trainer"}, 2: {"trainer"}}),
}

#: Those of a GPU: one rank, since NCCL refuses a second one on the same device.
GPU_LOOPS = {
    **{name: LOOPS[name][0] for name in ("trainer", "accelerate", "lightning")},
    "accelerate-by-itself-fsdp2": accelerate_fsdp2,
    "trainer-by-itself-fsdp2": trainer_fsdp2,
}


def main(rank: str, world: str, loop: str, server: str, directory: str, port: str) -> None:
    if int(world) > 1 or loop not in LOOPS:
        os.environ |= {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {"LOCAL_RANK": rank}
    os.environ |= {"RANK": rank, "WORLD_SIZE": world}
    run = GPU_LOOPS[loop] if DEVICE == "cuda" else LOOPS[loop][0]
    run(loop, server, str(Path(directory)))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
