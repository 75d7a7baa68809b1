"""The reference server as named actors of Ray, each on a node of its own."""

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import ray
from ray.experimental import internal_kv

from ... import _core
from ...server import Server
from ...server import serve as serve_here
from .book import Entry, entered, in_order
from .where import by_steadiness

#: The name by which the servers of a job are found in its namespace.
NAME = "weightcast"
#: Ports that are tried, between those that Ray takes for its workers and those that Linux gives out.
PORTS = range(20_000, 30_000)
#: How many of them.
TRIES = 16
#: Where Ray keeps the addresses of servers.
NAMESPACE = "weightcast"
#: Seconds in which servers have to start.
DEADLINE = 120.0

#: The servers that this process has started: Ray ends an actor to which nobody has a handle any more.
_kept: list[Any] = []


@dataclass(frozen=True)
class Servers:
    """The reference server and its backups, as clients need them."""

    #: The list, in the order which is the same for all.
    addresses: tuple[str, ...]
    #: What clients show.
    token: str

    @property
    def token_file(self) -> str:
        """A file with the token that only this process has, on no disk."""
        return _file(self.token)

    def __repr__(self) -> str:
        return f"<Servers {', '.join(self.addresses)}>"


@cache
def _file(token: str) -> str:
    descriptor = os.memfd_create("weightcast-token", os.MFD_CLOEXEC)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, token.encode())
    return f"/proc/{os.getpid()}/fd/{descriptor}"


class ServerActor:
    """One reference server of the list. Ray starts another in its place when it is lost: on the same node, if
    that is there, at the same address."""

    def __init__(self, name: str, index: int, token: str, options: dict[str, Any]) -> None:
        context = ray.get_runtime_context()
        #: What clients show.
        self._token = token
        self._server = _started(
            ray.util.get_node_ip_address(),
            _ports(f"{context.get_job_id()} {name} {index} {context.get_node_id()}"),
            {**options, "index": index, "token_file": _file(token)},
        )
        entry = entered(_books(name), index, self._server.address)
        internal_kv._internal_kv_put(_key(name, index), entry.encoded(), namespace=NAMESPACE)

    def token(self) -> str:
        """What clients show, once the server is there."""
        return self._token


def _key(name: str, index: int | str) -> str:
    return f"{ray.get_runtime_context().get_job_id()}/{name}/{index}"


def _books(name: str) -> dict[int, Entry]:
    """Where each server is, as it has entered it."""
    keys = internal_kv._internal_kv_list(_key(name, ""), namespace=NAMESPACE)
    return {
        int(key.decode().rsplit("/", 1)[1]): Entry.decoded(
            internal_kv._internal_kv_get(key, namespace=NAMESPACE)
        )
        for key in keys
    }


def _ports(seed: str) -> Iterator[int]:
    """Ports to try: the same for the same seed."""
    for attempt in range(TRIES):
        drawn = hashlib.blake2b(f"{seed} {attempt}".encode(), digest_size=8).digest()
        yield PORTS[int.from_bytes(drawn) % len(PORTS)]


def _started(address: str, ports: Iterator[int], options: dict[str, Any]) -> Server:
    """A server at the first port that is free."""
    shown = f"[{address}]" if ":" in address else address
    refusals = []
    for port in ports:
        try:
            return serve_here(f"{shown}:{port}", **options)
        except _core.WeightcastError as error:
            refusals.append(str(error))
    raise _core.Misuse(f"no reference server could be started at {address}: {refusals[-1]}")


def serve(count: int = 2, *, name: str = NAME, nodes: Sequence[str] | None = None, **options: Any) -> Servers:
    """Starts the job's reference server and its backups as actors, each on a node of its own, and waits until
    they are there. The driver calls it before workers open handles.

    Servers are at most as many as there are nodes: called again, when nodes have come, it adds those that are
    missing. `nodes` are ids of nodes, in the order in which they get servers; by default the head comes first
    and nodes that may be taken away last. `options` are those of `weightcast.serve`: `lease`, `fanout`,
    `metrics`.

    The actors live as long as the job, and in its namespace: jobs do not meet. A server that is lost is
    started again on its node, at its address; where the node is lost too, on another one that has no server,
    else on any."""
    if count < 1:
        raise _core.Misuse(f"count={count}: a job needs one reference server at least")
    chosen = list(nodes if nodes is not None else by_steadiness(ray.nodes()))[:count]
    there = _actors(name)
    token = secrets.token_hex(32)
    if there:
        token = ray.get(next(iter(there.values())).token.remote(), timeout=DEADLINE)
    missing = [index for index in range(len(chosen)) if index not in there]
    new = [_start(name, index, chosen, token, options) for index in missing]
    _kept.extend(new)
    ray.get([server.token.remote() for server in new], timeout=DEADLINE)
    return servers(name)


def _start(name: str, index: int, nodes: Sequence[str], token: str, options: dict[str, Any]) -> Any:
    others = [node for at, node in enumerate(nodes) if at != index]
    apart = {"ray.io/node-id": f"!in({', '.join(others)})"} if others else {}
    return (
        ray.remote(ServerActor)
        .options(
            name=_actor_name(name, index),
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            label_selector={"ray.io/node-id": nodes[index]},
            fallback_strategy=[{"label_selector": apart}, {"label_selector": {}}],
        )
        .remote(name, index, token, options)
    )


def servers(name: str = NAME, *, deadline: float = DEADLINE) -> Servers:
    """The servers of this job, those included that are being started again. Waits until one is there; raises
    `TimeoutError` if none comes."""
    asked = [actor.token.remote() for actor in _actors(name).values()]
    if not asked:
        raise _core.Misuse(
            f"this job has no reference server {name!r}: call weightcast.adapters.ray.serve() in its driver "
            "first"
        )
    ready, _ = ray.wait(asked, num_returns=1, timeout=deadline)
    if not ready:
        raise TimeoutError(
            f"none of the {len(asked)} reference servers {name!r} of this job has started within "
            f"{deadline} s: see `ray list actors`, or whether the cluster has a living node"
        )
    return Servers(in_order(_books(name)), ray.get(ready[0]))


def _actors(name: str) -> dict[int, Any]:
    """The actors that there are, by their numbers."""
    found = {}
    for index in sorted(_books(name)):
        with suppress(ValueError):  # somebody has ended it for good
            found[index] = ray.get_actor(_actor_name(name, index))
    return found


def _actor_name(name: str, index: int) -> str:
    return f"{name}-server-{index}"
