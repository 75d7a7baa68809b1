"""A program: a trainer that updates engines, once for each line that it hears: `NUMBER`, whose weights are
`Model.values(NUMBER)`. Says the version, or the error.

    trainer_program.py SERVER DIRECTORY NAME URL...

With torchrun's variables in the environment, it is a rank of a trainer sharded by FSDP2. `DEADLINE` there is the seconds of
each step, `TIMEOUT` those of a request, and `PAUSE` and `LANDING` are the modes. An engine that has the worker extension has a
`+` before its address, and one that is updated by the calls of vLLM's interface alone, as its own clients do, an `=`.
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


class Plain:
    """An engine as vLLM's own clients see it, but paused."""

    def __init__(self, engine: HTTPEngine) -> None:
        for name in (
            "init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update", "pause", "resume",
        ):  # fmt: skip
            setattr(self, name, getattr(engine, name))


def client(url: str, timeout: float) -> HTTPEngine | Plain:
    engine = HTTPEngine(url.lstrip("+="), timeout=timeout, extension=url[0] == "+")
    return Plain(engine) if url[0] == "=" else engine


def main(server: str, directory: str, name: str, *urls: str) -> None:
    model = Model(Path(directory))
    held = Held(model.values(0))
    said = {"RANK": "0", "DEADLINE": "60", "TIMEOUT": "60", "PAUSE": "abort", "LANDING": "staged"} | os.environ
    info = TrainerInfo(
        rank=int(said["RANK"]), server=server, name=name, deadline=float(said["DEADLINE"]), pause=said["PAUSE"],
        engine={"landing": said["LANDING"]},
    )  # fmt: skip
    timeout = float(said["TIMEOUT"])
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        fully_shard(held)
    sync = WeightcastTrainer.trainer_init(
        info,
        client=[client(url, timeout) for url in urls],
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
