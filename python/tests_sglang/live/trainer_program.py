"""A program: a trainer that updates SGLang engines, once for each line that it hears: `NUMBER`, whose weights are
`checkpoint(NUMBER)`. Says the version, or the error.

    trainer_program.py SERVER DIRECTORY NAME URL...

`DEADLINE` in the environment is the seconds of each step.
"""

import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests_sglang.configs import config
from tests_vllm.live.weights import Held
from tests_vllm.rules import Rules
from tests_vllm.trainer import checkpoint
from weightcast.adapters.sglang import SGLangEngine, SGLangTrainer, TrainerInfo


def main(server: str, directory: str, name: str, *urls: str) -> None:
    catalog = Rules(config("qwen3", random.Random("qwen3")), Path(directory)).catalog()
    held = Held(checkpoint(catalog, 0))
    info = TrainerInfo(server=server, name=name, deadline=float(os.environ["DEADLINE"]))
    sync = SGLangTrainer(info, client=[SGLangEngine(url) for url in urls], source=held)
    print("joined", flush=True)
    for line in sys.stdin:
        held.become(checkpoint(catalog, int(line)))
        try:
            print("sent", sync.send_weights(), flush=True)
        except Exception as error:
            print("failed", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
