"""The last copy of a retained version is kept aside before its owner may change it."""

import re

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON


def holders(handle: wc.Handle, version: int) -> set[str]:
    return handle.list(deadline=SOON).get(version, set())


def is_aside(handle: wc.Handle) -> bool:
    """Whether version 1 is kept aside, and nowhere else."""
    (holder,) = holders(handle, 1)
    return re.fullmatch(r"trainer~offload-\d+\.1", holder) is not None


def test_a_retained_version_outlives_its_publisher_s_memory(server):
    weights = np.arange(1 << 18, dtype="u4")
    published = weights.copy()
    with wc.open(
        "policy", wc.Replica("trainer"), role="trainer", retain=1, server=server.address
    ) as trainer:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        trainer.unpublish(deadline=SOON)
        weights[...] = 0
        assert is_aside(trainer)
        target = np.zeros_like(weights)
        with wc.open("policy", wc.Replica("late"), server=server.address) as late:
            late.register(wc.Layout().add(target, "w"))
            assert late.replicate(1, deadline=SOON).changed
            assert (target == published).all()
            # There is another copy: the one aside goes.
            late.wait(lambda versions: versions.get(1) == {"late"}, deadline=SOON)


def test_without_retention_the_last_copy_goes(server):
    weights = np.ones(1 << 10, "u4")
    with wc.open("policy", wc.Replica("trainer"), role="trainer", server=server.address) as trainer:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        trainer.unpublish(deadline=SOON)
        assert holders(trainer, 1) == set()


def test_without_room_the_version_is_lost_and_nothing_waits(server):
    weights = np.ones(1 << 20, "u4")
    with wc.open(
        "policy",
        wc.Replica("trainer"),
        role="trainer",
        retain=1,
        offload_bytes=1 << 20,
        server=server.address,
    ) as trainer:
        trainer.register(wc.Layout().add(weights, "w"))
        trainer.publish(1, deadline=SOON)
        trainer.unpublish(deadline=SOON)
        assert holders(trainer, 1) == set()


def test_an_evaluation_keeps_a_version_by_name_while_the_trainer_goes_on(server):
    weights = np.arange(1 << 16, dtype="u4")
    first = weights.copy()
    with (
        wc.open("policy", wc.Replica("trainer"), role="trainer", server=server.address) as trainer,
        wc.open("policy", wc.Replica("evaluation"), server=server.address) as evaluation,
    ):
        trainer.register(wc.Layout().add(weights, "w"))
        for version in range(1, 5):
            with trainer.published(version, deadline=SOON):
                if version == 1:
                    assert evaluation.retain(deadline=SOON) == 1
                    assert evaluation.version is None, "its own memory has no part in this"
            weights += 1
            assert is_aside(trainer)
            assert version == 1 or holders(trainer, version) == set()
        kept = [replica for replica in wc.status(server.address)["models"][0]["replicas"] if replica["retains"]]
        assert [(replica["name"], replica["retains"]) for replica in kept] == [("evaluation", [1])]
        target = np.zeros_like(weights)
        evaluation.register(wc.Layout().add(target, "w"))
        evaluation.replicate(1, deadline=SOON)
        assert (target == first).all()
        evaluation.let_go(1, deadline=SOON)
        evaluation.unpublish(deadline=SOON)
        assert holders(trainer, 1) == set()
        with pytest.raises(wc.VersionUnavailable):
            evaluation.retain(1, deadline=SOON)
