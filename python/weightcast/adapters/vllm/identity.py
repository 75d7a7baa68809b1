"""Which replica of the model a vLLM worker is a shard of."""

import socket
from typing import Any

from ... import _core
from ...replica import Replica
from ..engine import Settings


def replica_of(vllm_config: Any, settings: Settings) -> Replica:
    """The workers of an engine are the shards of one replica. Data-parallel ranks within one server are
    refused: vLLM answers with what the first of them says."""
    parallel = vllm_config.parallel_config
    if parallel.data_parallel_size > 1:
        raise _core.Misuse(
            f"this server has {parallel.data_parallel_size} data-parallel ranks, of which vLLM lets one "
            "answer; start a server for each, and update them as a fleet"
        )
    name = settings.replica or f"{socket.gethostname()}-{vllm_config.instance_id}"
    return Replica(
        name, parallel.rank, parallel.world_size, datacentre=settings.datacentre, spot=settings.spot
    )
