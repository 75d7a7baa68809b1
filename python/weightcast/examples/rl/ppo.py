"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with generalised advantages
(Schulman et al. 2016, arXiv:1506.02438).

An answer is an episode, a token an action, and the reward comes with the last token:

    delta_t = r_t + gamma V(s_t+1) - V(s_t)              V = 0 after the end
    A_t = sum over l of (gamma lambda)^l delta_t+l        (16) of the latter
    L = - mean of min(rho_t A_t, clip(rho_t, 1 - eps, 1 + eps) A_t) + c mean of L_V     (7), (9)
    L_V = max((V - R_t)^2, (clip(V, V_old - eps, V_old + eps) - R_t)^2) / 2,  R_t = A_t + V_old

The values' clip is that of the authors' code (openai/baselines, ppo2). `rho_t` is against the
log-probabilities of the engine that sampled, so that samples may be some versions old.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..rl_loop.policy import clipped_loss
from .lessons import Lesson, Said


def generalised_advantages(rewards: Tensor, values: Tensor, discount: float, trace: float) -> Tensor:
    """`[rows, tokens]` from the rewards and values of each token; the answer ends with the last."""
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    deltas = rewards + discount * after - values
    found = torch.zeros_like(deltas)
    running = torch.zeros_like(deltas[:, 0])
    for t in reversed(range(deltas.shape[1])):
        running = deltas[:, t] + discount * trace * running
        found[:, t] = running
    return found


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Half the squared error of the values, or of the clipped ones where that is larger."""
    clipped = old + (values - old).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()


@dataclass(frozen=True)
class PPO:
    """`discount` is gamma, `trace` lambda, `value_weight` c."""

    clip: float
    discount: float
    trace: float
    value_weight: float

    def lesson(
        self, prompts: Tensor, answers: Tensor, behaviour: Tensor, rewards: Tensor, values: Tensor | None
    ) -> Lesson:
        """Advantages against what the value head expected, brought to mean 0 and deviation 1."""
        assert values is not None  # trainers of PPO have a head
        earned = torch.zeros_like(values)
        earned[:, -1] = rewards
        found = generalised_advantages(earned, values, self.discount, self.trace)
        even = (found - found.mean()) / (found.std() + 1e-8)
        return Lesson(prompts, answers, behaviour, even, returns=found + values, values=values)

    def loss(self, lesson: Lesson, said: Said) -> Tensor:
        """The clipped surrogate, negative, and the values' error."""
        assert said.values is not None and lesson.values is not None and lesson.returns is not None
        policy = clipped_loss(said.logprobs, lesson.behaviour, lesson.advantages, self.clip)
        wrong = value_loss(said.values, lesson.values, lesson.returns, self.clip)
        return policy + self.value_weight * wrong
