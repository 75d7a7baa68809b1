"""Which replica an actor is, and where servers go: read off what Ray says."""

import pytest
import ray

import weightcast as wc
import weightcast.adapters.ray as wcr
from weightcast.adapters.ray.book import Entry, entered, in_order
from weightcast.adapters.ray.where import Bundle, bundle_index, by_steadiness, datacentre_of, spot_by

from .actors import Rollout

GROUP = "bd3a4453c88cf223015b86e88a0201000000"


def test_shards_follow_from_bundles():
    for index, name, shard in [
        (0, "r-bd3a4453-0", 0),
        (1, "r-bd3a4453-0", 1),
        (2, "r-bd3a4453-1", 0),
        (3, "r-bd3a4453-1", 1),
    ]:
        here = wcr.Where("n", "10.0.0.1", "eu", True, actor="a811ed9f7b91", bundle=Bundle(GROUP, index, 4))
        assert here.replica("r", shards=2) == wc.Replica(name, shard, 2, datacentre="eu", host="n", spot=True)
    assert here.replica("r").name == "r-a811ed9f" and here.replica("r").num_shards == 1
    assert here.replica("mine", shards=3, shard=2) == wc.Replica(
        "mine", 2, 3, datacentre="eu", host="n", spot=True
    )
    with pytest.raises(wc.Misuse, match="4 bundles .* no whole replicas of 3"):
        here.replica("r", shards=3)


def test_an_actor_outside_of_a_group_is_a_replica():
    here = wcr.Where("n", "10.0.0.1", actor="a811ed9f7b91cecd")
    assert here.replica("r") == wc.Replica("r-a811ed9f", host="n")
    assert wcr.Where("n", "10.0.0.1").replica("r") == wc.Replica("r", host="n")  # the driver
    with pytest.raises(wc.Misuse, match="no placement group .* give shard="):
        here.replica("r", shards=2)
    with pytest.raises(wc.Misuse, match="one at least"):
        here.replica("r", shards=0)


def test_bundles_are_told_by_what_a_worker_holds():
    held = [
        f"CPU_group_1_{GROUP}",
        f"bundle_group_{GROUP}",
        f"bundle_group_12_{GROUP}",
        "bundle_group_3_00ff",
    ]
    assert bundle_index(held, GROUP) == 12
    assert bundle_index(held, "00ff") == 3
    assert bundle_index(held, "aaaa") is None


def test_labels_name_datacentre_and_market():
    assert datacentre_of({}) == ""
    assert datacentre_of({"ray.io/region": "eu"}) == "eu"
    assert datacentre_of({"ray.io/region": "eu", "ray.io/availability-zone": "eu-1a"}) == "eu-1a"
    assert datacentre_of({"ray.io/availability-zone": "eu-1a", "weightcast/datacentre": "hall-7"}) == "hall-7"
    assert spot_by({"ray.io/market-type": "spot"}) and not spot_by({"ray.io/market-type": "on-demand"})
    assert not spot_by({})


def test_servers_go_to_nodes_that_stay():
    def node(name, alive=True, head=False, market="on-demand"):
        resources = {"CPU": 1.0} | ({"node:__internal_head__": 1.0} if head else {})
        return {
            "NodeID": name,
            "Alive": alive,
            "Resources": resources,
            "Labels": {"ray.io/market-type": market},
        }

    nodes = [node("a", market="spot"), node("d"), node("b", alive=False), node("c"), node("e", head=True)]
    assert by_steadiness(nodes) == ["e", "c", "d", "a"]


def test_lists_that_are_read_at_different_times_agree():
    books = {}

    def start(index, address):
        books[index] = Entry.decoded(entered(books, index, address).encoded())
        return in_order(books)

    start(1, "b")
    assert start(0, "a") == ("a", "b"), "the list is in the order of numbers, whoever comes first"
    # A server in the same place, and one that has moved: it comes behind all that others know already.
    assert start(0, "a") == ("a", "b")
    assert start(0, "c") == ("b", "c")
    assert start(0, "c") == ("b", "c")
    assert start(1, "d") == ("c", "d")
    assert start(0, "a") == ("d", "a")


@pytest.mark.usefixtures("one_node")
def test_workers_of_a_placement_group_are_shards():
    placed = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy

    def rollout(group, bundle, shards):
        options = {"num_cpus": 0.1, "scheduling_strategy": placed(group, bundle)}
        return Rollout.options(**options).remote(shards=shards, model="placed")

    def replica(name, shard, of):
        return wc.Replica(name, shard, of, host=ray.nodes()[0]["NodeID"])

    four, one = (ray.util.placement_group([{"CPU": 0.1}] * bundles) for bundles in (4, 1))
    actors = [rollout(four, bundle, 2) for bundle in (3, 1, 0, 2)]
    assert ray.get(actors[0].where.remote()).bundle == Bundle(four.id.hex(), 3, 4)
    name = f"rollout-{four.id.hex()[:8]}"
    assert ray.get([each.replica.remote() for each in actors]) == [
        replica(f"{name}-1", 1, 2),
        replica(f"{name}-0", 1, 2),
        replica(f"{name}-0", 0, 2),
        replica(f"{name}-1", 0, 2),
    ]
    # Of one that asked for any bundle.
    alone = rollout(one, -1, 1)
    assert ray.get(alone.where.remote()).bundle == Bundle(one.id.hex(), 0, 1)
    assert ray.get(alone.replica.remote()) == replica(f"rollout-{alone._actor_id.hex()[:8]}", 0, 1)
    for group in (four, one):
        ray.util.remove_placement_group(group)
