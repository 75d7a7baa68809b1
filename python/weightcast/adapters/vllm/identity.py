"""Which replica of the model a vLLM worker is a shard of."""

import socket
from typing import Any

from ...replica import Replica
from ..engine import Settings


def replica_of(vllm_config: Any, settings: Settings) -> Replica:
    """The workers of an engine are the shards of one replica. Data-parallel ranks are replicas of their
    own, but where experts are spread over all of them: there, all workers together hold the model once."""
    parallel = vllm_config.parallel_config
    name = settings.replica or f"{socket.gethostname()}-{vllm_config.instance_id}"
    index, shard, workers = parallel.data_parallel_index, parallel.rank, parallel.world_size
    if parallel.data_parallel_size > 1:
        if parallel.enable_expert_parallel:
            shard, workers = index * workers + shard, parallel.world_size_across_dp
        else:
            name = f"{name}-{index}"
    return Replica(name, shard, workers, datacentre=settings.datacentre, spot=settings.spot)
