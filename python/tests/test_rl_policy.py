"""The demo's task and loss."""

import pytest

torch = pytest.importorskip("torch")

from weightcast.examples.rl_loop.policy import advantages, clipped_loss  # noqa: E402
from weightcast.examples.rl_loop.task import SortTask  # noqa: E402

TASK = SortTask(base=8, length=4)


def test_prompts_are_digits_and_a_separator():
    prompts = TASK.prompts(100, torch.Generator().manual_seed(0))
    assert prompts.shape == (100, TASK.prompt_tokens)
    assert prompts[:, :4].min() == 0 and prompts[:, :4].max() == 7
    assert (prompts[:, 4] == 8).all()


def test_reward_is_the_fraction_of_right_tokens():
    prompts = torch.tensor([[3, 1, 2, 1, 8]]).expand(3, -1)
    answers = torch.tensor([[1, 1, 2, 3], [1, 1, 3, 2], [9, 9, 9, 9]])
    assert TASK.reward(prompts, answers).tolist() == [1.0, 0.5, 0.0]


def test_advantages_compare_answers_to_one_prompt_only():
    got = advantages(torch.tensor([0.0, 1.0, 0.5, 0.5]), group=2)
    torch.testing.assert_close(got, torch.tensor([-1.0, 1.0, 0.0, 0.0]), rtol=0, atol=1e-3)


def test_the_gradient_favours_better_answers_until_the_clip():
    behaviour = torch.zeros(2, 1)
    logprobs = torch.zeros(2, 1, requires_grad=True)
    clipped_loss(logprobs, behaviour, torch.tensor([1.0, -1.0]), clip=0.2).backward()
    assert logprobs.grad[0] < 0 < logprobs.grad[1]
    far = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    clipped_loss(far, behaviour, torch.tensor([1.0, -1.0]), clip=0.2).backward()
    assert not far.grad.any()
