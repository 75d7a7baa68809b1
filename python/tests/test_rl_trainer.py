"""The trainer's and the rollout's loop, each by itself, over a real server and everything else made up."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch.distributed as dist  # noqa: E402

import weightcast as wc  # noqa: E402
from weightcast.examples.rl.models import Outputs  # noqa: E402
from weightcast.examples.rl.rollout import STOP, following, roll_out, seed_of  # noqa: E402
from weightcast.examples.rl.settings import LoopSettings, Post  # noqa: E402
from weightcast.examples.rl.stamp import STAMP, Piece, Stamp  # noqa: E402
from weightcast.examples.rl.trainer import train  # noqa: E402
from weightcast.examples.rl_loop.backlog import Batch  # noqa: E402
from weightcast.examples.rl_loop.sampling import Sampled  # noqa: E402

SOON = 20.0


def post(name: str, **options) -> Post:
    settings = LoopSettings(trainers=1, rollouts=1, rollouts_per_gpu=16, timeout=SOON, **options)
    return Post(name, 0, 1, 1, settings, "token", 0, 0)


@pytest.fixture
def alone(server, monkeypatch):
    """This process is the only rank, and its handles find the server."""
    monkeypatch.setenv("WEIGHTCAST_SERVER", server.address)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield server
    dist.destroy_process_group()


class MadeUp:
    """A learner of one tensor. Notes which version could be read when weights were written, and what of."""

    group, leads = None, True

    def __init__(self, server):
        self.server, self.weight = server, torch.zeros(4, 8)
        self.lessons, self.readable = [], []

    def replica(self):
        return wc.Replica("trainer")

    def layout(self, beside):
        return wc.Layout(beside=beside).add(self.weight, "w")

    def pieces(self):
        return [Piece("w", self.weight)]

    def receive(self, get):
        return get()

    def look(self, tokens):
        return Outputs(torch.zeros(*tokens.shape, 32), torch.zeros(*tokens.shape))

    def descend(self, tokens, objective):
        assert objective(Outputs(*(t.requires_grad_() for t in self.look(tokens)))).requires_grad
        self.lessons.append(len(tokens))

    def step(self):
        (model,) = wc.status(self.server.address)["models"]
        self.readable.append([version["version"] for version in model["versions"]])
        self.weight += 1


class MadeUpSamples:
    """Rollouts that answer everything with zeros, always from the oldest version that is accepted."""

    def __init__(self):
        self.asked, self.digests, self.reports = [], {}, []

    def publish(self, version, digest):
        self.digests[version] = digest

    def get(self, min_version):
        self.asked.append(min_version)
        version = max(0, min_version)
        prompts = np.tile(np.array([[1, 0, 3, 2, 8]]), (16, 1))
        return Batch(version, prompts, np.zeros((16, 4), np.int64), np.zeros((16, 4), np.float32), self.digests[version])

    def report(self, **event):
        self.reports.append(event)


@pytest.mark.parametrize("in_place", [True, False])
def test_the_trainer_learns_every_pass_and_writes_only_what_nobody_may_read(alone, in_place):
    learner, samples = MadeUp(alone), MadeUpSamples()
    options = {"algorithm": "ppo", "ppo_epochs": 2, "minibatches": 3, "iterations": 3, "max_staleness": 1}
    train(post("trainer", in_place=in_place, **options), samples, learner)
    assert learner.lessons == [6, 5, 5, 6, 5, 5] * 3
    assert samples.asked == [-1, 0, 1]
    told = [(event["step"], event["staleness"], event["samples_of"]) for event in samples.reports[:-1]]
    assert told == [(0, 0, {"0": 16}), (1, 1, {"1": 16}), (2, 1, {"1": 16})]
    assert {event["reward"] for event in samples.reports[:-1]} == {0.25}
    assert samples.reports[-1]["event"] == "stalled" and samples.reports[-1]["seconds"] > 0
    assert len(set(samples.digests.values())) == 3, "each version is of other weights"
    want = [[]] * 6 if in_place else [[0]] * 6
    assert learner.readable[:6] == want
    assert learner.readable[6:12] == ([[]] * 6 if in_place else [[1]] * 6)


class MadeUpEngine:
    """An engine of one tensor, which answers with what the tensor holds."""

    def __init__(self):
        self.weight, self.installs = torch.zeros(4), 0

    def layout(self, handle):
        return wc.Layout().add(self.weight, "w")

    def installed(self):
        self.installs += 1

    def answer(self, prompts, length, temperature, draw):
        tokens = torch.full((len(prompts), length), int(self.weight[0]))
        return Sampled(tokens, torch.zeros(len(prompts), length))


class Wanting:
    """Trainers that want batches, each of a version that is published when it is wanted."""

    def __init__(self, publish, wanted):
        self.publish, self.wanted, self.got, self.reports = publish, list(wanted), [], []

    def ticket(self):
        if not self.wanted:
            return None
        version, floor = self.wanted.pop(0)
        self.publish(version)
        return floor

    def put(self, batch):
        self.got.append(batch)

    def report(self, **event):
        self.reports.append(event)


@pytest.fixture
def publishing(alone):
    """`publish(version)`: a trainer publishes that version, of weights that are its number."""
    weight, stamp = torch.zeros(4), Stamp()
    with wc.open("policy", wc.Replica("trainer"), role="trainer", epoch="new") as handle:
        handle.register(stamp.add_to(wc.Layout().add(weight, "w")), deadline=SOON)

        def publish(version):
            if handle.version == version:
                return
            if handle.version is not None:
                handle.unpublish(deadline=SOON)
            weight.fill_(version)
            stamp.write(0xD0 + version)
            handle.publish(version, deadline=SOON)

        yield publish
        handle.unpublish(deadline=SOON)


def test_samples_bear_the_version_and_the_digest_of_their_weights(publishing):
    samples, engine = Wanting(publishing, [(0, 0), (0, 0), (2, 1), (3, 3)]), MadeUpEngine()
    roll_out(post("rollout-0"), samples, engine)
    assert [batch.version for batch in samples.got] == [0, 0, 2, 3]
    assert [int(batch.digest, 16) for batch in samples.got] == [0xD0, 0xD0, 0xD2, 0xD3]
    for batch in samples.got:
        assert (batch.answers == batch.version).all() and batch.prompts.shape == (16, 5)
        groups = batch.prompts.reshape(2, 8, 5)
        assert (groups == groups[:, :1]).all() and (groups[0] != groups[1]).any(), "eight answers to a prompt"
    assert engine.installs == 3, "only what changed"
    assert [event["version"] for event in samples.reports] == [0, 2, 3]


def test_a_rollout_waits_for_a_version_that_is_new_enough(publishing):
    publishing(4)
    with wc.open("policy", wc.Replica("rollout-0")) as handle:
        handle.register(Stamp().add_to(wc.Layout().add(torch.zeros(4), "w")), deadline=SOON)
        updates = following(handle, floor=6, timeout=SOON)
        assert next(updates)[0].version == 4
        publishing(6)
        assert next(updates)[0].version == 6
        assert list(updates) == []
    assert STAMP and STOP < 0


def test_each_life_of_each_rollout_draws_otherwise():
    lives = [post("rollout-0"), post("rollout-1"), post("rollout-0", seed=1)]
    second = Post(**{**lives[0].__dict__, "life": 2})
    assert len({seed_of(each) for each in [*lives, second]}) == 4
    other_rank = Post(**{**lives[0].__dict__, "rank": 1})
    assert seed_of(other_rank) == seed_of(lives[0]), "ranks of one rollout draw the same"
