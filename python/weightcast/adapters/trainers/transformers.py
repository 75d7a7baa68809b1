"""Transformers' `Trainer`, and what is built on it.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[PublishSteps("policy")])
"""

from typing import Any

from transformers import TrainerCallback

from .steps import Steps


class PublishSteps(TrainerCallback):
    """Publishes a `Trainer`'s weights after its optimizer's steps. Takes the arguments of `Steps`.

    The `Trainer` hands out its model as it was before FSDP1 wrapped it. There, say where the wrapped one is:
    `of=lambda model: trainer.model_wrapped`.
    """

    def __init__(self, model: str = "policy", **arguments: Any) -> None:
        #: What is called when.
        self.steps = Steps(model, **arguments)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Publishes what training begins with."""
        self.steps.begin(given["model"], state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Takes the version back that the step is about to change."""
        self.steps.before()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Publishes; the step is counted after this."""
        self.steps.after(state.global_step + 1)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Takes the last version back where weights of a former step are about to be loaded."""
        if control.should_training_stop and args.load_best_model_at_end:
            self.steps.before()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Leaves the job."""
        self.steps.end()
