"""A program: two ranks whose peft model FSDP2 has cut publish its adapter, each its shard; rank 0 reads it back and
says whether it is whole."""

import os
import socket
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import tests_vllm  # noqa: F401

# isort: split

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard

import weightcast as wc
from tests_vllm.live.adapters import become, peft_model
from tests_vllm.live.weights import Model
from weightcast.adapters.engine.adapter import Adapter, carried, memory_for
from weightcast.adapters.engine.sources import source_of

RANKS = 2


def trainer(rank: int, server: str, port: int, directory: str) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    model = peft_model(Model(Path(directory)))
    become(model, 1)
    whole = {name: tensor.detach().clone() for name, tensor in Adapter(model).tensors().items()}
    fully_shard(model)
    # What rank 0 says of the base counts.
    source = source_of(Adapter(model, base=5 + rank), rank)
    with wc.open("one", source.replica("trainer"), role="trainer", epoch="new", server=server) as handle:
        handle.register(source.layout())
        source.refresh()
        with handle.published(1):
            if rank == 0:
                read_back(server, memory_for(source.catalog()), whole)
            dist.barrier()


def read_back(server: str, memory: dict, whole: dict) -> None:
    listed = wc.Layout()
    for name, tensor in memory.items():
        listed.add(tensor, name)
    with wc.open("one", wc.Replica("rollout"), server=server) as rollout:
        rollout.register(listed)
        assert rollout.update().changed
    found = carried(memory)
    assert found.base == 5 and found.tensors.keys() == whole.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in whole.items())
    print("whole", flush=True)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    with wc.serve() as serving, tempfile.TemporaryDirectory() as place:
        Model(Path(place))
        mp.spawn(trainer, (serving.address, free, place), nprocs=RANKS)
