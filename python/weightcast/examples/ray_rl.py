"""A reinforcement-learning loop on Ray, whose rollouts follow the trainer's weights; any node but the head
may be lost.

    python -m weightcast.examples.ray_rl                           # one machine
    python -m weightcast.examples.ray_rl --address auto            # a cluster that is there
    python -m weightcast.examples.ray_rl --nodes 3 --lose server   # three nodes on this machine, one is lost

What is added to a loop without weightcast ends in `# +`.
"""

import argparse
import contextlib
import os
import signal
from dataclasses import dataclass
from typing import Any

import ray
import torch

import weightcast.adapters.ray as wcr  # +
from weightcast.examples.ray_record import Record, write

SYMBOLS = 8
SAMPLES = 64
#: The actor that is the first reference server.
SERVER = "weightcast-server-0"
#: Seconds for a rollout's samples.
PATIENCE = 120.0


def policy() -> torch.nn.Module:
    """Answers each symbol with another one."""
    torch.manual_seed(0)
    return torch.nn.Embedding(SYMBOLS, SYMBOLS)


@dataclass
class Batch:
    """What one rollout was asked, and answered."""

    asked: torch.Tensor
    answers: torch.Tensor
    rewards: torch.Tensor
    #: Of the weights that answered.
    version: int | None = None


class Trainer:
    """Learns from answers and their rewards."""

    def __init__(self) -> None:
        self.policy = policy()
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=8.0)
        self.weights = wcr.trainer(self.policy)  # +
        self.weights.resume()  # +

    def train(self, batches: list[Batch]) -> float:
        """One step of REINFORCE; returns the mean reward."""
        asked = torch.cat([batch.asked for batch in batches])
        answers = torch.cat([batch.answers for batch in batches])
        rewards = torch.cat([batch.rewards for batch in batches])
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
    def generate(self) -> Batch:
        """Answers to symbols that are drawn."""
        asked = torch.randint(SYMBOLS, (SAMPLES,), generator=self.random)
        answers = torch.multinomial(self.policy(asked).softmax(-1), 1, generator=self.random)[:, 0]
        batch = Batch(asked, answers, rewards=(answers == (asked + 3) % SYMBOLS).float())
        batch.version = self.weights.version  # +
        return batch


def place(actor: object) -> tuple[str, int]:
    """Runs in an actor: its node, and its process there."""
    return ray.get_runtime_context().get_node_id(), os.getpid()


def actor(kind: type, *arguments: Any) -> Any:
    """An actor that Ray starts again wherever it is lost."""
    # On a node of its own while there are any: what all actors hold is lost with the only node they are on.
    options = {"num_cpus": 1, "max_restarts": -1, "scheduling_strategy": "SPREAD"}
    return ray.remote(kind).options(**options).remote(*arguments)


def samples(rollouts: tuple[Any, ...]) -> list[Batch]:
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


def step(sync: wcr.WeightSync, trainer: Any, record: Record) -> None:
    """Weights to the rollouts, samples from those that have them, and a training step. A trainer that is lost
    is started again by Ray, and goes on with the weights of a rollout."""
    try:
        sent = sync.send()  # +
        batches = samples(sent.updated)
        reward = ray.get(trainer.train.remote(batches)) if batches else None
    except ray.exceptions.RayActorError as error:
        record.in_vain(f"the trainer is lost: {type(error).__name__}")
        return
    if reward is None:
        record.in_vain("no rollout has the version")
    else:
        record.learnt(reward, sync.version, [batch.version for batch in batches], set(sent.updated))


def loop(steps: int, rollouts: int, cluster: "Nodes | None" = None, lose: str | None = None) -> Record:
    """What became of all steps: so many, and more where rollouts are behind at the end."""
    wcr.serve(nodes=cluster.ids if cluster else None)  # +
    trainer = actor(Trainer)
    others = [actor(Rollout, seed) for seed in range(rollouts)]
    sync = wcr.WeightSync([trainer], others, staged=True)  # +
    record = Record(sync.rollouts)
    for _ in range(10 * steps):
        if cluster and lose and len(record.steps) == steps // 2:
            cluster.lose(lose, trainer, sync.rollouts, record)
            lose = None
        step(sync, trainer, record)
        if len(record.steps) >= steps and record.all_follow:
            break
    if cluster:
        # Until the server is there, wherever that is now.
        ray.get(ray.get_actor(SERVER).__ray_call__.remote(place))
        record.look_at_servers()
    return record


class Nodes:
    """Several nodes on this machine beside a head that has no room for actors; any of them may be lost."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        common = {"object_store_memory": 100 << 20, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
        self._nodes = [self._cluster.add_node(num_cpus=4, **common) for _ in range(count)]
        self.ids = [node.node_id for node in self._nodes]
        ray.init(address=self._cluster.address, log_to_driver=False)

    def lose(self, what: str, trainer: Any, rollouts: list[Any], record: Record) -> None:
        """Takes the node away on which the server, the trainer or the first rollout runs."""
        actors = {f"rollout {number}": rollout for number, rollout in enumerate(rollouts)}
        actors |= {"trainer": trainer, "server": ray.get_actor(SERVER)}
        places = {name: ray.get(actor.__ray_call__.remote(place)) for name, actor in actors.items()}
        lost, _ = places["rollout 0" if what == "rollout" else what]
        there = {name: os.pidfd_open(process) for name, (node, process) in places.items() if node == lost}
        record.happened("node lost", " and ".join(there))
        (node,) = (node for node in self._nodes if node.node_id == lost)
        self._cluster.remove_node(node, allow_graceful=False)
        for process in there.values():
            # Ray's workers outlive their node for a moment.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)

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
    parser.add_argument("--json", help="write the record of all steps there")
    given = parser.parse_args()
    cluster = Nodes(given.nodes) if given.nodes else None
    if cluster is None:
        ray.init(given.address, include_dashboard=False if given.address is None else None)
    try:
        record = loop(given.steps, given.rollouts, cluster, given.lose)
    finally:
        cluster.close() if cluster else ray.shutdown()
    rewards = [step.reward for step in record.steps]
    print(f"reward {rewards[0]:.2f} at the start, {rewards[-1]:.2f} at the end")
    if given.json:
        write(given.json, [record.as_json(lost=given.lose, nodes=given.nodes)])


if __name__ == "__main__":
    main()
