"""One rank of the trainers: publishes a version, learns from samples, steps. Run by `supervisor`."""

import time
from collections import Counter
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import weightcast as wc

from ..rl_loop.backlog import Batch
from ..rl_loop.processes import process_group
from ..rl_loop.samples import Samples
from .alphabet import Alphabet, alphabet_of
from .grpo import GRPO
from .learner import Learner, learner_of
from .lessons import Algorithm, Lesson, Said, minibatches, read_tokens, said_of
from .models import Outputs
from .ppo import PPO
from .publication import Publication
from .settings import LoopSettings, Post
from .stamp import STAMP, Stamp, digest_of

NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""What layouts call dtypes."""
MEANS = "reward", "staleness", "drift", "waited"
"""What is told of a step as a mean over the ranks."""


class Taken(NamedTuple):
    """What the samples of a step were: mean reward, versions behind, and how far the policy has moved
    from the one that sampled (mean difference of log-probabilities: without staleness that is rounding,
    or else a rollout has wrong weights). How many there were, and seconds that were waited for them."""

    reward: float
    staleness: float
    drift: float
    samples: float
    waited: float


class School:
    """Makes lessons of batches, and has the learner learn them."""

    def __init__(self, settings: LoopSettings, learner: Learner):
        self.settings, self.learner = settings, learner
        self.algorithm = algorithm_of(settings)
        self.alphabet: Alphabet = alphabet_of(settings)

    def lesson(self, batch: Batch, step: int, waited: float) -> tuple[Lesson, Taken]:
        """What is to be learnt from a batch, and what it was."""
        prompts, answers = torch.from_numpy(batch.prompts), torch.from_numpy(batch.answers)
        behaviour = torch.from_numpy(batch.logprobs)
        decode = self.alphabet.decode
        rewards = self.settings.task.reward(decode(prompts), decode(answers))
        said = self._said(self.learner.look(read_tokens(prompts, answers)), prompts, answers)
        lesson = self.algorithm.lesson(prompts, answers, behaviour, rewards, said.values)
        drift = (said.logprobs - behaviour).abs().mean()
        behind = step - batch.version
        return lesson, Taken(float(rewards.mean()), behind, float(drift), len(rewards), waited)

    def order(self, lesson: Lesson, step: int) -> list[Tensor]:
        """Which rows each step of the optimizer learns from."""
        s = self.settings
        shuffle = torch.Generator().manual_seed(s.seed * 1_000_003 + step)
        return list(minibatches(len(lesson.answers), s.epochs, s.minibatches, shuffle))

    def descend(self, lesson: Lesson) -> None:
        """Gradients of a lesson."""
        tokens = read_tokens(lesson.prompts, lesson.answers)
        self.learner.descend(tokens, partial(self._loss, lesson))

    def _loss(self, lesson: Lesson, outputs: Outputs) -> Tensor:
        return self.algorithm.loss(lesson, self._said(outputs, lesson.prompts, lesson.answers))

    def _said(self, outputs: Outputs, prompts: Tensor, answers: Tensor) -> Said:
        return said_of(outputs, prompts, answers, self.settings.temperature)


def algorithm_of(settings: LoopSettings) -> Algorithm:
    """The algorithm that the settings ask for."""
    s = settings
    if s.algorithm == "ppo":
        return PPO(s.clip, s.discount, s.trace, s.value_weight)
    return GRPO(s.answers, s.clip)


def layout_of(settings: LoopSettings, learner: Learner, stamp: Stamp) -> wc.Layout:
    """What a rank publishes: its part of the policy, cast if engines have another dtype, and the stamp."""
    layout = stamp.add_to(learner.layout(not settings.in_place))
    if settings.dtype != settings.train_dtype:
        layout.keep(STAMP).cast("*", NAMES[settings.dtype])
    return layout


def train(post: Post, samples: Samples, learner: Learner) -> None:
    """The loop: publish, learn from what rollouts sampled, step."""
    settings, school, stamp = post.settings, School(post.settings, learner), Stamp()
    wait = settings.timeout
    with wc.open("policy", learner.replica(), role="trainer", epoch="new", deadline=wait) as handle:
        handle.register(layout_of(settings, learner, stamp), deadline=wait)
        dist.barrier()  # all replicas open before the first of them publishes
        publication = Publication(handle, not settings.in_place, wait)
        for step in range(settings.iterations):
            seal(step, stamp, post, samples, learner)
            published = publication.publish(step)
            oldest = step - settings.max_staleness
            batch = learner.receive(lambda: samples.get(min_version=oldest))  # noqa: B023 called at once
            lesson, taken = school.lesson(batch, step, time.monotonic() - published)
            first, *more = school.order(lesson, step)
            school.descend(lesson.rows(first))
            unpublished = publication.before_change()
            learner.step()
            for rows in more:
                school.descend(lesson.rows(rows))
                learner.step()
            ended = time.monotonic() if not settings.in_place else unpublished
            tell(step, taken, post, samples, learner, published=published, unpublished=ended)
        samples.report(event="stalled", seconds=publication.stalled)


def seal(step: int, stamp: Stamp, post: Post, samples: Samples, learner: Learner) -> None:
    """Writes the digest of the weights into the stamp; the hub knows it before a rollout can."""
    stamp.write(digest_of(learner.pieces(), learner.group))
    if post.rank == 0:
        samples.publish(step, stamp.text)
    dist.barrier()


def tell(
    step: int, taken: Taken, post: Post, samples: Samples, learner: Learner, **stamps: float
) -> None:
    """Tells the parent of a step, what all ranks took together."""
    mine = torch.tensor([*taken, learner.leads], dtype=torch.float64)
    all_ranks = [torch.empty_like(mine) for _ in range(post.size)]
    dist.all_gather(all_ranks, mine)
    if post.rank == 0:
        took = [Taken(*each[:-1]) for each in torch.stack(all_ranks).tolist() if each[-1]]
        means = {name: sum(getattr(t, name) for t in took) / len(took) for name in MEANS}
        histogram = Counter[str]()
        for each in took:
            histogram[str(int(each.staleness))] += int(each.samples)
        samples.report(event="step", step=step, **means, samples_of=dict(histogram), **stamps)


def main() -> None:
    """The process of one trainer rank."""
    post = Post.from_environment()
    settings = post.settings
    me = (f"{post.name}.{post.life}", post.rank, post.size)
    with process_group(me, post.rendezvous_port, settings.timeout):
        label = f"{post.name}/{post.rank}"
        samples = Samples(post.samples_port, post.token, label, settings.timeout)
        try:
            train(post, samples, learner_of(settings))
        finally:
            samples.close()


if __name__ == "__main__":
    main()
