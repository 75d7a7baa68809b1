"""A batch as what is to be learnt from it, and the order in which that is done.

Both algorithms weigh each token by how much likelier the policy of now finds it than the policy
that wrote it did, within a clip. The log-probabilities of then come from the rollout's engine with
the samples, so a sample may be some versions old.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .models import Outputs

Objective = Callable[[Outputs], Tensor]
"""The loss of what a model says of the tokens of a lesson."""


class Said(NamedTuple):
    """What a model says of answers `[rows, tokens]`: each token's log-probability, and what the value
    head expected before it."""

    logprobs: Tensor
    values: Tensor | None


@dataclass(frozen=True)
class Lesson:
    """Answers `[rows, tokens]` to `prompts`, and what each token was worth.

    `behaviour` are the log-probabilities they were drawn with, `advantages` how much better than
    expected they were. PPO has `returns` and `values` as well: what was earned from each token on,
    and what the head expected.
    """

    prompts: Tensor
    answers: Tensor
    behaviour: Tensor
    advantages: Tensor
    returns: Tensor | None = None
    values: Tensor | None = None

    def rows(self, index: Tensor) -> "Lesson":
        """Some of the answers."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return Lesson(**{name: None if t is None else t[index] for name, t in chosen.items()})


class Algorithm(Protocol):
    """What GRPO and PPO are here."""

    def lesson(
        self, prompts: Tensor, answers: Tensor, behaviour: Tensor, rewards: Tensor, values: Tensor | None
    ) -> Lesson:
        """What is to be learnt of answers with `rewards` `[rows]`."""

    def loss(self, lesson: Lesson, said: Said) -> Tensor:
        """What to descend."""


def read_tokens(prompts: Tensor, answers: Tensor) -> Tensor:
    """What a model reads to say all of the answers' tokens."""
    return torch.cat([prompts, answers[:, :-1]], dim=1)


def said_of(outputs: Outputs, prompts: Tensor, answers: Tensor, temperature: float) -> Said:
    """Of what a model says of all tokens that it has read, what it says of the answers'."""
    first = prompts.shape[1] - 1
    logprobs = (outputs.logits[:, first:].float() / temperature).log_softmax(dim=-1)
    chosen = logprobs.gather(2, answers[..., None]).squeeze(2)
    return Said(chosen, None if outputs.values is None else outputs.values[:, first:].float())


def minibatches(rows: int, epochs: int, each: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers for each step: `each` minibatches in every epoch, every row once an epoch, shuffled."""
    for _ in range(epochs):
        yield from torch.randperm(rows, generator=generator).tensor_split(each)
