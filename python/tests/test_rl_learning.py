"""GRPO and PPO by hand and by learning: the formulas, and a policy that gets better with a fixed seed."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import weightcast as wc  # noqa: E402
from weightcast.examples.rl.ddp import Torch  # noqa: E402
from weightcast.examples.rl.grpo import GRPO  # noqa: E402
from weightcast.examples.rl.lessons import Lesson, Said, minibatches, said_of  # noqa: E402
from weightcast.examples.rl.models import ActorCritic, Outputs, build, config_of  # noqa: E402
from weightcast.examples.rl.ppo import PPO, generalised_advantages, value_loss  # noqa: E402
from weightcast.examples.rl.settings import LoopSettings  # noqa: E402
from weightcast.examples.rl.small import decoder_of  # noqa: E402
from weightcast.examples.rl.stamp import Piece, Stamp, digest_of  # noqa: E402
from weightcast.examples.rl.trainer import School, layout_of  # noqa: E402
from weightcast.examples.rl_loop.backlog import Batch  # noqa: E402

SOON = 20.0
TOKENS = torch.tensor([[0, 1, 2], [2, 1, 0]])


def lesson(advantages, behaviour, **more):
    return Lesson(TOKENS, TOKENS, behaviour, advantages, **more)


def test_generalised_advantages_are_those_of_the_paper():
    rewards = torch.tensor([[0.0, 0.0, 1.0]])
    values = torch.tensor([[0.5, 0.25, 0.75]])
    deltas = [0.9 * 0.25 - 0.5, 0.9 * 0.75 - 0.25, 1.0 - 0.75]
    decay = 0.9 * 0.8
    want = [deltas[0] + decay * deltas[1] + decay**2 * deltas[2], deltas[1] + decay * deltas[2], deltas[2]]
    got = generalised_advantages(rewards, values, discount=0.9, trace=0.8)
    torch.testing.assert_close(got, torch.tensor([want]))


def test_values_are_only_pulled_as_far_as_the_clip():
    old, returns = torch.zeros(1, 2), torch.tensor([[1.0, 1.0]])
    near = torch.tensor([[0.1, 0.1]])
    assert value_loss(near, old, returns, clip=0.2).item() == pytest.approx(0.5 * 0.9**2)
    beyond = torch.tensor([[0.5, 0.5]], requires_grad=True)
    loss = value_loss(beyond, old, returns, clip=0.2)
    assert loss.item() == pytest.approx(0.5 * 0.8**2), "the clipped error is the larger one"
    loss.backward()
    assert not beyond.grad.any()


def test_ppo_rewards_the_last_token_and_keeps_what_was_expected():
    values = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])
    ppo = PPO(clip=0.2, discount=1.0, trace=1.0, value_weight=0.5)
    made = ppo.lesson(TOKENS, TOKENS, torch.zeros(2, 3), torch.tensor([1.0, 0.0]), values)
    torch.testing.assert_close(made.returns, torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert made.advantages.mean().abs() < 1e-6 and made.advantages[0].min() > 0 > made.advantages[1].max()
    said = Said(torch.zeros(2, 3), values)
    policy_alone = PPO(clip=0.2, discount=1.0, trace=1.0, value_weight=0.0).loss(made, said)
    assert ppo.loss(made, said).item() == pytest.approx(policy_alone.item() + 0.5 * 0.125)


def test_grpo_gives_all_tokens_of_an_answer_what_it_beats_its_group_by():
    answers = TOKENS.repeat(2, 1)
    rewards = torch.tensor([1.0, 0.5, 0.25, 0.75])
    made = GRPO(group=2, clip=0.2).lesson(answers, answers, torch.zeros(4, 3), rewards, None)
    assert made.returns is None
    want = torch.tensor([1.0, -1.0, -1.0, 1.0])[:, None].expand(4, 3)
    torch.testing.assert_close(made.advantages, want, rtol=0, atol=1e-3)


def test_the_ratio_of_each_token_is_clipped_by_itself():
    behaviour = torch.zeros(1, 2)
    logprobs = torch.tensor([[0.0, 1.0]], requires_grad=True)
    made = Lesson(TOKENS[:1], TOKENS[:1, :2], behaviour, torch.ones(1, 2))
    GRPO(group=2, clip=0.2).loss(made, Said(logprobs, None)).backward()
    assert logprobs.grad[0, 0] == pytest.approx(-0.5) and logprobs.grad[0, 1] == 0


def test_what_is_said_of_answers_begins_before_them():
    prompts, answers = torch.tensor([[1, 2]]), torch.tensor([[3, 0]])
    logits = torch.full((1, 3, 4), -1e9)
    logits[0, 1, 3] = logits[0, 2, 0] = 0.0
    logits[0, 1, 2] = 0.0
    values = torch.tensor([[7.0, 8.0, 9.0]])
    said = said_of(Outputs(logits, values), prompts, answers, temperature=1.0)
    torch.testing.assert_close(said.logprobs, torch.tensor([[-0.6931472, 0.0]]))
    assert said.values.tolist() == [[8.0, 9.0]]


def test_log_probabilities_are_those_of_the_temperature():
    logits = torch.tensor([[[4.0, 1.0]]]).log()
    said = said_of(Outputs(logits, None), TOKENS[:1, :1], torch.tensor([[0]]), temperature=2.0)
    torch.testing.assert_close(said.logprobs.exp(), torch.tensor([[2 / 3]]))


def test_every_epoch_has_every_row_once():
    parts = list(minibatches(10, 3, 4, torch.Generator().manual_seed(0)))
    assert len(parts) == 12
    orders = [torch.cat(parts[4 * epoch : 4 * epoch + 4]) for epoch in range(3)]
    assert all(order.sort().values.tolist() == list(range(10)) for order in orders)
    assert not torch.equal(orders[0], orders[1])


def settings(**options) -> LoopSettings:
    return LoopSettings(trainers=1, rollouts=1, base=4, length=3, hidden=32, learning_rate=4e-3, **options)


@pytest.mark.parametrize(
    ("algorithm", "model", "steps", "rise"),
    [
        ("grpo", "qwen2", 50, 0.3),
        pytest.param("grpo", "gpt2", 40, 0.3, marks=pytest.mark.full),
        pytest.param("ppo", "qwen2", 25, 0.3, marks=pytest.mark.full),
        ("ppo", "gpt2", 25, 0.3),
    ],
)
def test_a_policy_learns(server, algorithm, model, steps, rise):
    """Trainer and engine in one process, over weightcast, one version behind: the same each time."""
    s = settings(algorithm=algorithm, model=model, max_staleness=1)
    actor = ActorCritic(build(s), algorithm == "ppo")
    learner = Torch(actor, actor, s.learning_rate)
    school, ours, theirs = School(s, learner), Stamp(), Stamp()
    engine = decoder_of(config_of(s), 0, 1, torch.float32)
    draw, rewards, old = torch.Generator().manual_seed(s.seed), [], None
    with (
        wc.open("policy", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address) as trainer,
        wc.open("policy", wc.Replica("rollout"), server=server.address) as rollout,
    ):
        trainer.register(layout_of(s, learner, ours), deadline=SOON)
        rollout.register(theirs.add_to(engine.layout()), deadline=SOON)
        for step in range(steps):
            ours.write(digest_of(Piece(name, p) for name, p in actor.policy.named_parameters()))
            with trainer.published(step, deadline=SOON):
                assert rollout.update(deadline=SOON).version == step
            assert theirs.text == ours.text
            prompts = s.task.prompts(12, draw).repeat_interleave(8, 0)
            answers, logprobs = engine.generate(prompts, s.length, generator=draw)
            fresh = Batch(step, prompts.numpy(), answers.numpy(), logprobs.numpy(), theirs.text)
            batch, old = old or fresh, fresh
            made, taken = school.lesson(batch, step, waited=0.0)
            if step == 0:
                assert taken.drift < 1e-5, "engine and trainer disagree"
            rewards.append(taken.reward)
            for rows in school.order(made, step):
                school.descend(made.rows(rows))
                learner.step()
    first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    assert last - first > rise, rewards
