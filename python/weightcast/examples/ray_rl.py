"""A reinforcement-learning loop on Ray, whose rollouts follow the trainer's weights; any node but the head
may be lost.

    python -m weightcast.examples.ray_rl                           # one machine
    python -m weightcast.examples.ray_rl --address auto            # a cluster that is there
    python -m weightcast.examples.ray_rl --nodes 3 --lose server   # three nodes on this machine, one is lost

What is added to a loop without weightcast ends in `# +`.
"""

import argparse
from typing import Any

import ray
import torch

import weightcast.adapters.ray as wcr  # +

SYMBOLS = 8
SAMPLES = 64
#: Seconds for a rollout's samples.
PATIENCE = 120.0


def policy() -> torch.nn.Module:
    """Answers each symbol with another one."""
    torch.manual_seed(0)
    return torch.nn.Embedding(SYMBOLS, SYMBOLS)


class Trainer:
    """Learns from answers and their rewards."""

    def __init__(self) -> None:
        self.policy = policy()
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=8.0)
        self.weights = wcr.trainer(self.policy)  # +
        self.weights.resume()  # +

    def train(self, batches: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> float:
        """One step of REINFORCE; returns the mean reward."""
        asked, answers, rewards = (torch.cat(parts) for parts in zip(*batches, strict=True))
        chances = self.policy(asked).log_softmax(-1).gather(1, answers[:, None])[:, 0]
        loss = -((rewards - rewards.mean()) * chances).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(rewards.mean())


class Rollout:
    """Answers with the weights that it holds. The right answer to a symbol is the third one after it."""

    def __init__(self, seed: int) -> None:
        self.policy = policy()
        self.random = torch.Generator().manual_seed(seed)
        self.weights = wcr.rollout(self.policy)  # +

    @torch.no_grad()
    def generate(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Symbols, answers, rewards."""
        asked = torch.randint(SYMBOLS, (SAMPLES,), generator=self.random)
        answers = torch.multinomial(self.policy(asked).softmax(-1), 1, generator=self.random)[:, 0]
        return asked, answers, (answers == (asked + 3) % SYMBOLS).float()


def actor(kind: type, *arguments: Any) -> Any:
    """An actor that Ray starts again wherever it is lost."""
    return ray.remote(kind).options(num_cpus=1, max_restarts=-1).remote(*arguments)


def samples(rollouts: tuple[Any, ...]) -> list[Any]:
    """What rollouts generate, but for those that are lost meanwhile."""
    asked = [rollout.generate.remote() for rollout in rollouts]
    done, _ = ray.wait(asked, num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
    batches = []
    for ref in done:
        try:
            batches.append(ray.get(ref))
        except ray.exceptions.RayActorError:
            pass
    return batches


def step(sync: wcr.WeightSync, trainer: Any) -> float | None:
    """Weights to the rollouts, samples from those that have them, and a training step. None if the trainer
    was lost: Ray starts it again, and it goes on with the weights of a rollout."""
    try:
        sent = sync.send()  # +
        batches = samples(sent.updated)
        return ray.get(trainer.train.remote(batches)) if batches else None
    except ray.exceptions.RayActorError as error:
        print(f"the trainer is lost: {type(error).__name__}")
        return None


def loop(steps: int, rollouts: int, cluster: "Nodes | None" = None, lose: str | None = None) -> list[float]:
    """The rewards of all steps."""
    wcr.serve(nodes=cluster.ids if cluster else None)  # +
    trainer = actor(Trainer)
    others = [actor(Rollout, seed) for seed in range(rollouts)]
    sync = wcr.WeightSync([trainer], others, staged=True)  # +
    rewards: list[float] = []
    for number in range(10 * steps):
        if cluster and lose and len(rewards) == steps // 2:
            cluster.lose(lose, trainer, sync.rollouts)
            lose = None
        reward = step(sync, trainer)
        if reward is not None:
            rewards.append(reward)
            print(f"step {number}: reward {reward:.2f}", flush=True)
        if len(rewards) == steps:
            break
    return rewards


class Nodes:
    """Several nodes on this machine beside a head that has no room for actors; any of them may be lost."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        common = {"object_store_memory": 100 << 20, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
        self._nodes = [self._cluster.add_node(num_cpus=4, **common) for _ in range(count)]
        self.ids = [node.node_id for node in self._nodes]
        ray.init(address=self._cluster.address, log_to_driver=False)

    def lose(self, what: str, trainer: Any, rollouts: list[Any]) -> None:
        """Takes the node away on which the server, the trainer or a rollout runs."""
        actor = {"server": ray.get_actor("weightcast-server-0"), "trainer": trainer, "rollout": rollouts[0]}[
            what
        ]
        lost = ray.get(actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()))
        (node,) = (node for node in self._nodes if node.node_id == lost)
        print(f"node {lost[:8]} is lost, which had the {what}", flush=True)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """Ends all nodes."""
        ray.shutdown()
        self._cluster.shutdown()


def main() -> None:
    """Trains, and says what became of the reward."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rollouts", type=int, default=2)
    parser.add_argument("--address", help="of a cluster; by default this machine")
    parser.add_argument("--nodes", type=int, help="start a cluster of so many nodes on this machine")
    parser.add_argument("--lose", choices=["server", "trainer", "rollout"], help="of --nodes, half-way")
    given = parser.parse_args()
    cluster = Nodes(given.nodes) if given.nodes else None
    if cluster is None:
        ray.init(given.address, include_dashboard=False if given.address is None else None)
    try:
        rewards = loop(given.steps, given.rollouts, cluster, given.lose)
    finally:
        cluster.close() if cluster else ray.shutdown()
    print(f"reward {rewards[0]:.2f} at the start, {rewards[-1]:.2f} at the end")


if __name__ == "__main__":
    main()
