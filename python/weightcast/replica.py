"""Who a worker is, and where."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Replica:
    """One shard of a replica: one worker's part of one whole copy of the weights.

    All workers of a model-parallel group give the same `name` and `num_shards`, each its own
    `shard` from 0. `datacentre`, `host` (this machine's name by default) and `spot` (may be taken
    away at any time) guide the choice of sources.
    """

    name: str
    shard: int = 0
    num_shards: int = 1
    datacentre: str = ""
    host: str | None = None
    spot: bool = False
