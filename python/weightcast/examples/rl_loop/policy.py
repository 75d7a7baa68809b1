"""The loss: policy gradient with a group baseline and clipped importance weights (GRPO-like).

Every prompt is answered several times; an answer is as good as it beats the others to the same
prompt, so no value network is needed. Samples come from a version at least one step old, so each
token is weighted by how much likelier the policy of now finds it, within a clip.
"""

import torch
from torch import Tensor, nn


def advantages(rewards: Tensor, group: int) -> Tensor:
    """How far each answer is above the others to its prompt, in standard deviations.

    `rewards` is `[prompts * group]`, the answers to one prompt next to each other.
    """
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    spread = grouped.std(dim=1, keepdim=True, correction=0)
    return (centred / (spread + 1e-4)).view(-1)


def answer_logprobs(model: nn.Module, prompts: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """The log-probability the model gives each answer token, `[rows, answer length]`."""
    tokens = torch.cat([prompts, answers[:, :-1]], dim=1)
    logits = model(input_ids=tokens, use_cache=False).logits[:, prompts.shape[1] - 1 :]
    logprobs = (logits / temperature).log_softmax(dim=-1)
    return logprobs.gather(2, answers[..., None]).squeeze(2)


def clipped_loss(logprobs: Tensor, behaviour: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate; `behaviour` are the log-probabilities the samples were drawn with.

    `advantage` is that of each answer, `[rows]`, or of each of its tokens, as `logprobs` are.
    """
    each = advantage[:, None] if advantage.dim() == 1 else advantage
    ratio = (logprobs - behaviour).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * each, clipped * each).mean()
