"""Where a worker is, read off Ray: its node, the node's labels, its bundle of a placement group."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray

from ... import _core
from ...replica import Replica

#: Labels of a node that name its datacentre, the first that is there.
DATACENTRE = ("weightcast/datacentre", "ray.io/availability-zone", "ray.io/region")
#: The label that says whether a node may be taken away at any time, as Ray's own clusters set it.
MARKET = "ray.io/market-type"
#: How Ray calls a worker's share of a bundle.
BUNDLE = re.compile(r"bundle_group_(\d+)_([0-9a-f]+)")
#: Hex digits of an id that go into the name of a replica.
DIGITS = 8


@dataclass(frozen=True)
class Bundle:
    """A worker's bundle of a placement group."""

    #: The placement group, by its id.
    group: str
    #: Which bundle, from 0.
    index: int
    #: How many the placement group has.
    of: int


@dataclass(frozen=True)
class Where:
    """Where a process of a Ray cluster is."""

    #: The node's id, which is the host of a replica: several nodes on one machine are several hosts.
    node: str
    #: The address at which other nodes reach this one.
    address: str
    #: By the node's labels; empty where none says it.
    datacentre: str = ""
    #: Whether the node may be taken away at any time.
    spot: bool = False
    #: The actor's id; None in a driver or a task.
    actor: str | None = None
    #: The bundle of a placement group; None outside of any.
    bundle: Bundle | None = None

    def replica(self, name: str, *, shards: int = 1, shard: int | None = None) -> Replica:
        """The replica of which an actor here is a shard.

        Without `shard`, an actor is a replica by itself, and of several shards each as many bundles of the
        placement group in a row are one replica, a bundle each. Names end in the actor's id, or in the
        placement group's id and the number of the replica in it: an actor that Ray has restarted is the same
        replica again. With `shard`, `name` is the replica's whole name."""
        if shards < 1:
            raise _core.Misuse(f"shards={shards}: a replica has one at least")
        if shard is None:
            name, shard = self._of_group(name, shards)
        return Replica(
            name, shard=shard, num_shards=shards, datacentre=self.datacentre, host=self.node, spot=self.spot
        )

    def _of_group(self, name: str, shards: int) -> tuple[str, int]:
        if shards == 1:
            return name if self.actor is None else f"{name}-{self.actor[:DIGITS]}", 0
        if self.bundle is None:
            raise _core.Misuse(
                f"{name} has {shards} shards, and this actor is in no placement group that would say which "
                "one it is: give shard="
            )
        if self.bundle.of % shards:
            raise _core.Misuse(
                f"{self.bundle.of} bundles of placement group {self.bundle.group[:DIGITS]} are no whole "
                f"replicas of {shards} shards each: give shard="
            )
        number, shard = divmod(self.bundle.index, shards)
        return f"{name}-{self.bundle.group[:DIGITS]}-{number}", shard


def where() -> Where:
    """Where this process is: a worker, or the driver."""
    context = ray.get_runtime_context()
    labels = context.get_node_labels() or {}
    return Where(
        node=context.get_node_id(),
        address=ray.util.get_node_ip_address(),
        datacentre=datacentre_of(labels),
        spot=spot_by(labels),
        actor=context.get_actor_id(),
        bundle=_bundle(context.get_placement_group_id()),
    )


def datacentre_of(labels: Mapping[str, str]) -> str:
    """The datacentre that a node's labels name; empty if none does."""
    return next((labels[name] for name in DATACENTRE if labels.get(name)), "")


def spot_by(labels: Mapping[str, str]) -> bool:
    """Whether a node's labels say that it may be taken away at any time."""
    return labels.get(MARKET, "").lower() == "spot"


def _bundle(group: str | None) -> Bundle | None:
    if group is None:
        return None
    # Of the bundle of a worker that asked for any, nothing else tells.
    held = ray._private.worker.global_worker.core_worker.resource_ids()
    index = bundle_index(held, group)
    of = ray.util.get_current_placement_group().bundle_count
    return None if index is None else Bundle(group, index, of)


def bundle_index(held: Iterable[str], group: str) -> int | None:
    """Which bundle of the placement group a worker has that holds these resources."""
    found = (BUNDLE.fullmatch(name) for name in held)
    return next((int(match[1]) for match in found if match and match[2] == group), None)


def by_steadiness(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of living nodes (rows of `ray.nodes()`), those first that a server had best be on: the head,
    whose loss ends the job anyway; then others that nobody takes away; then those that may be."""
    alive = [node for node in nodes if node["Alive"]]
    return [
        node["NodeID"]
        for node in sorted(
            alive,
            key=lambda node: (
                "node:__internal_head__" not in node["Resources"],
                spot_by(node["Labels"]),
                node["NodeID"],
            ),
        )
    ]
