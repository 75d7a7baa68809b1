"""A version crosses to another datacentre in the background, and nobody waits for it."""

import time

import numpy as np

import weightcast as wc

from .conftest import SOON


def test_an_update_returns_at_once_and_a_later_one_reads_the_seed(server):
    weights = np.arange(1 << 20, dtype="u4")
    target = np.zeros_like(weights)
    trainer = wc.open(
        "policy", wc.Replica("trainer", datacentre="us"), role="trainer", server=server.address
    )
    rollout = wc.open(
        "policy",
        wc.Replica("rollout", datacentre="eu"),
        offload_seeding=True,
        server=server.address,
    )
    with trainer, rollout:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        rollout.register(wc.Layout().add(target, "w"))
        assert rollout.update("latest", deadline=SOON).changed, "who holds nothing does not wait"
        trainer.unpublish(deadline=SOON)
        weights += 7
        trainer.publish(2, deadline=SOON)

        updated = rollout.update("latest", deadline=SOON)
        assert (updated.changed, updated.version) == (False, 1)
        seed = f"rollout~seed-{trainer.epoch}.2"
        rollout.wait(lambda versions: seed in versions.get(2, set()), deadline=SOON)
        updated = rollout.update("latest", deadline=SOON)
        assert updated.changed and updated.source == seed
        assert (target == weights).all()
        rollout.wait(lambda versions: versions.get(2) == {"trainer", "rollout"}, deadline=SOON)


def test_without_room_the_next_update_crosses(server):
    weights, target = np.ones(1 << 20, "u4"), np.zeros(1 << 20, "u4")
    trainer = wc.open(
        "policy", wc.Replica("trainer", datacentre="us"), role="trainer", server=server.address
    )
    rollout = wc.open(
        "policy",
        wc.Replica("rollout", datacentre="eu"),
        offload_seeding=True,
        offload_bytes=1 << 10,
        server=server.address,
    )
    with trainer, rollout:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        rollout.register(wc.Layout().add(target, "w"))
        rollout.update("latest", deadline=SOON)
        trainer.unpublish(deadline=SOON)
        weights += 1
        trainer.publish(2, deadline=SOON)
        assert not rollout.update("latest", deadline=SOON).changed
        ends = time.monotonic() + SOON
        while not (updated := rollout.update("latest", deadline=SOON)).changed:
            assert time.monotonic() < ends, "it is unchanged for ever"
        assert updated.source == "trainer"
        assert (target == 2).all()
