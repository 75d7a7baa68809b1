"""Rollouts that come and go with the work on Ray: as many as the samples of a step need, within bounds.

    python -m weightcast.examples.ray_autoscale

A new rollout is an actor that asks for a CPU: on a cluster with an autoscaler, Ray adds a node for it. It has
the newest weights as soon as it is there, from the trainer or from another rollout. One that is given up
leaves first, so that nobody reads from it when it ends.
"""

import argparse

import ray

import weightcast.adapters.ray as wcr
from weightcast.adapters.ray.scaling import Scale
from weightcast.examples.ray_rl import SAMPLES, Rollout, Trainer, actor, samples

#: Seconds that a step waits for a new rollout; one whose node comes later joins later.
PATIENCE = 60.0
#: Samples that each step wants, as multiples of what one rollout makes.
WORK = [1, 1, 3, 3, 3, 1, 1, 1]


def resize(sync: wcr.WeightSync, wanted: int, seed: int) -> None:
    """Adds rollouts, or has some leave."""
    while len(sync.rollouts) < wanted:
        sync.rollouts.append(actor(Rollout, seed + len(sync.rollouts)))
    sync.wait_for_new(PATIENCE)
    while len(sync.rollouts) > wanted:
        leaving = sync.rollouts.pop()
        ray.get(leaving.__ray_call__.remote(lambda rollout: rollout.weights.leave()))
        ray.kill(leaving)


def loop(work: list[int], scale: Scale) -> list[int]:
    """How many rollouts have made samples in each step."""
    wcr.serve()
    trainer = actor(Trainer)
    sync = wcr.WeightSync([trainer], [actor(Rollout, seed) for seed in range(scale.least)], keep=True)
    there, missed = [], 0
    for step, share in enumerate(work):
        resize(sync, scale.wanted(len(sync.rollouts), share * SAMPLES, missed), seed=step)
        sent = sync.send()
        missed = len(sent.missed)
        batches = samples(sent.updated)
        there.append(len(batches))
        ray.get(trainer.__ray_call__.remote(lambda actor: actor.weights.take_back()))
        reward = ray.get(trainer.train.remote(batches)) if batches else 0.0
        print(
            f"step {step}: {share * SAMPLES} samples wanted, {there[-1]} rollouts, reward {reward:.2f}",
            flush=True,
        )
    return there


def main() -> None:
    """Follows a load that rises and falls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--address", help="of a cluster; by default this machine")
    given = parser.parse_args()
    local = {"num_cpus": given.most + 1, "include_dashboard": False} if given.address is None else {}
    ray.init(given.address, **local)
    try:
        print("rollouts:", *loop(WORK, Scale(least=1, most=given.most, per_rollout=SAMPLES)))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
