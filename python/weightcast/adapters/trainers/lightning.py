"""Lightning.

    trainer = Trainer(callbacks=[PublishSteps("policy", of=lambda module: module.model)])
"""

from typing import Any

from lightning.pytorch import Callback

from .steps import Steps


class PublishSteps(Callback):
    """Publishes the weights of a Lightning trainer after its optimizer's steps. Takes the arguments of
    `Steps`; `of` is given the module as the trainer's strategy has wrapped it, or the `LightningModule` where
    it wraps none."""

    def __init__(self, model: str = "policy", **arguments: Any) -> None:
        #: What is called when.
        self.steps = Steps(model, **arguments)
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Publishes what training begins with."""
        self._step = trainer.global_step
        wrapped = trainer.strategy.model
        self.steps.begin(pl_module if wrapped is None else wrapped, self._step)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Takes the version back that the step is about to change."""
        self.steps.before()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Publishes, if the batch was the last of a step."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self.steps.after(self._step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leaves the job."""
        self.steps.end()
