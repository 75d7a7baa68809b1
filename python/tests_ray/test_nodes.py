"""Three nodes, of which two are lost one after the other: with a server, the trainer's node never."""

import os
import time

import pytest
import ray
from ray.core.generated import autoscaler_pb2

import weightcast.adapters.ray as wcr

from .actors import Rollout, Trainer, gone, replicas

pytestmark = pytest.mark.full


def on(node: str) -> dict:
    return {"label_selector": {"ray.io/node-id": node}}


def holding(rollouts: tuple, version: int) -> bool:
    return ray.get([each.holds.remote() for each in rollouts]) == [(version, {version})] * len(rollouts)


def servers_on() -> list[str]:
    actors = [ray.get_actor(f"weightcast-server-{index}") for index in range(2)]
    return ray.get([each.__ray_call__.remote(lambda _: wcr.where().node) for each in actors])


def test_the_job_outlives_the_nodes_of_its_servers(three_nodes):
    head, eu, us = (three_nodes[name] for name in ("head", "eu", "us"))
    known = wcr.serve(nodes=[eu, us], lease=3.0, drain_deadline=5.0)
    assert len(known.addresses) == 2 and servers_on() == [eu, us]
    trainer = Trainer.options(**on(head)).remote(reconnect=5.0)
    # Those of lost nodes are started again on any.
    places = [{**on(node), "fallback_strategy": [{"label_selector": {}}]} for node in (eu, us, head)]
    first, second, third = (
        Rollout.options(max_restarts=-1, **place).remote(reconnect=5.0) for place in places
    )
    sync = wcr.WeightSync([trainer], [first, second, third])

    def send_to(*rollouts):
        """Versions until these have one; what became of the first. Where the machine is short of processors a
        lease may end meanwhile: a rollout keeps what it has then, is named, and has the next version."""
        tried = []
        while not tried or (len(tried) < 3 and not set(rollouts) <= set(tried[-1].updated)):
            ray.get(trainer.train.remote(sync.version + 1))
            tried.append(sync.send())
        assert holding(rollouts, sync.version), tried
        return tried[0]

    def lose(node, rollout, server):
        """Workers outlive their node's raylet for a moment."""
        server = ray.get_actor(f"weightcast-server-{server}").__ray_call__.remote(lambda _: os.getpid())
        pids = ray.get([rollout.pid.remote(), server])
        three_nodes.lose(node)
        assert all(gone(pid, 30.0) for pid in pids)

    send_to(first, second, third)
    shards = [each["shards"][0] for name, each in sorted(replicas("policy").items())]
    assert {(shard["host"], shard["datacentre"], shard["spot"]) for shard in shards} == {
        (head, "", False),
        (eu, "eu", False),
        (us, "us", True),
    }

    lose("eu", first, 0)
    assert first in send_to(second, third).missed
    # The lost server is not on the node of its backup, and the lost rollout has joined again.
    ray.get(first.replica.options(max_task_retries=-1).remote())
    send_to(first, second, third)
    assert servers_on() == [head, us]
    # Who joins now has a list that agrees with those of the others.
    assert len(wcr.servers().addresses) == 2 and wcr.servers().addresses[0] == known.addresses[1]

    # Now no server is left of those that the trainer knew.
    lose("us", second, 1)
    assert second in send_to(third).missed
    ray.get(second.replica.options(max_task_retries=-1).remote())
    send_to(first, second, third)
    assert servers_on() == [head, head]


def test_rollouts_leave_a_node_that_is_taken_away(three_nodes):
    wcr.serve(nodes=[three_nodes["head"]], lease=60.0)
    trainer = Trainer.options(**on(three_nodes["head"])).remote()
    stays, goes = (Rollout.options(**on(three_nodes[name])).remote() for name in ("eu", "us"))
    sync = wcr.WeightSync([trainer], [stays, goes])
    assert sync.send()
    name = ray.get(goes.replica.remote()).name
    assert name in replicas("policy")
    in_a_minute = time.time_ns() // 1_000_000 + 60_000
    client = ray._raylet.GcsClient(address=three_nodes.cluster.address)
    preemption = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    assert client.drain_node(three_nodes["us"], preemption, "a test", in_a_minute)[0]
    sent = sync.send()
    assert sent.updated == (stays,) and "taken away" in sent.missed[goes]
    # Its lease would last for a minute: it has left by itself.
    assert ray.get(goes.holds_nothing.remote())
    assert name not in replicas("policy")
    assert sync.send().updated == (stays,)
