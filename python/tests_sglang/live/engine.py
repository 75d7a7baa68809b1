"""What `engine_program` runs, once the places are put where a test may hold it."""

import json
import os
import random
import sys
from pathlib import Path

import torch
from torch import nn

from tests_sglang.configs import config
from tests_sglang.serving import Served, engine, runtime_context
from tests_vllm.rules import Rules
from tests_vllm.trainer import checkpoint
from weightcast.adapters.sglang.request import LOADER

FAMILY = "qwen3"
#: How many weights there are to tell apart.
WEIGHTS = 4


class Program:
    """The engine, and a model beside it, which loads checkpoints by itself."""

    def __init__(self, directory: Path) -> None:
        self.config = config(FAMILY, random.Random(FAMILY))
        self.catalog = Rules(self.config, directory).catalog()
        # Built first: building publishes anew.
        self.other = self.built()
        self.model = self.built()
        self.served = Served(runtime_context.get_server_args(), self.model)

    def built(self) -> nn.Module:
        model = engine.build(self.config, tp=1, rank=0, custom_weight_loader=[LOADER])
        model.load_weights(checkpoint(self.catalog, 0).items())
        return model

    def holds(self) -> int | None:
        for weights in range(WEIGHTS):
            self.other.load_weights(checkpoint(self.catalog, weights).items())
            expected = dict(self.other.named_parameters())
            if all(torch.equal(own, expected[name]) for name, own in self.model.named_parameters()):
                return weights
        return None

    def state(self) -> dict[str, object]:
        self.served.engine.settle()
        paused = self.served.tokenizer.is_pause or self.served.engine._engine_paused
        stamped = self.served.tokenizer.server_args.weight_version
        return {"holds": self.holds(), "generates": not paused, "stamped": stamped}


def main(directory: str) -> None:
    program = Program(Path(directory))
    print(program.served.url, flush=True)
    for _ in sys.stdin:
        print(json.dumps(program.state()), flush=True)
    os._exit(0)

