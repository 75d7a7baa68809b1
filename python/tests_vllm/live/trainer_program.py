"""A program: a trainer that updates engines, once for each line that it hears: `NUMBER`, whose weights are
`Model.values(NUMBER)`. Says the version, or the error.

    trainer_program.py SERVER DIRECTORY NAME URL...

With torchrun's variables in the environment, it is a rank of a trainer sharded by FSDP2; `DEADLINE` there is the seconds of
each step. An engine that has the worker extension has a `+` before its address.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import tests_vllm  # noqa: F401

# isort: split

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from tests_vllm.live.weights import Held, Model
from weightcast.adapters.vllm import HTTPEngine, TrainerInfo, WeightcastTrainer


def main(server: str, directory: str, name: str, *urls: str) -> None:
    model = Model(Path(directory))
    held = Held(model.values(0))
    rank, deadline = int(os.environ.get("RANK", "0")), float(os.environ.get("DEADLINE", "60"))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        fully_shard(held)
    sync = WeightcastTrainer.trainer_init(
        TrainerInfo(rank=rank, server=server, name=name, deadline=deadline),
        client=[HTTPEngine(url.lstrip("+"), timeout=60.0, extension=url[0] == "+") for url in urls],
        source=held,
    )
    print("joined", flush=True)
    for line in sys.stdin:
        held.become(model.values(int(line)))
        try:
            print("sent", sync.send_weights(), flush=True)
        except Exception as error:
            print("failed", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
