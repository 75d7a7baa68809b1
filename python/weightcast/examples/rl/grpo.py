"""Group-relative policy optimisation (Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, section 4.1).

Every prompt is answered G times, and an answer's tokens are all as good as it beats the others:

    A_i,t = (r_i - mean(r_1..r_G)) / std(r_1..r_G)
    J = mean over i, t of min(rho_i,t A_i,t, clip(rho_i,t, 1 - eps, 1 + eps) A_i,t)
    rho_i,t = pi(o_i,t | q, o_i,<t) / pi_behaviour(o_i,t | q, o_i,<t)

The paper's penalty for leaving a reference model is left out (beta = 0), as DAPO (arXiv:2503.14476)
and others do where a rule verifies the answers.
"""

from dataclasses import dataclass

from torch import Tensor

from ..rl_loop.policy import advantages, clipped_loss
from .lessons import Lesson, Said


@dataclass(frozen=True)
class GRPO:
    """`group` answers to each prompt, next to each other."""

    group: int
    clip: float

    def lesson(
        self, prompts: Tensor, answers: Tensor, behaviour: Tensor, rewards: Tensor, values: Tensor | None
    ) -> Lesson:
        """How far each answer is above the others to its prompt, for all of its tokens."""
        each = advantages(rewards, self.group)[:, None].expand_as(behaviour)
        return Lesson(prompts, answers, behaviour, each)

    def loss(self, lesson: Lesson, said: Said) -> Tensor:
        """The clipped surrogate, negative: it is descended."""
        return clipped_loss(said.logprobs, lesson.behaviour, lesson.advantages, self.clip)
