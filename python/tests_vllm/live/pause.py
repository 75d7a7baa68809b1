"""Measures how long a vLLM server stands still for an update of a model of the size of Qwen2.5-0.5B, on this
machine: fetched while it generates and then installed (by orders of a fleet's driver, and by vLLM's plain calls),
fetched while it stands still, and the same weights written to files and loaded by vLLM's own reload. Prints a
JSON object; needs 8 GB of memory and 1 GB of disk.

    python -m tests_vllm.live.pause [--runs 5]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import tests_vllm  # noqa: F401

# isort: split

from safetensors.torch import save_file

from tests_vllm.live.rig import Rig
from tests_vllm.live.weights import Held, Model
from weightcast.adapters.vllm import HTTPEngine, TrainerInfo, WeightcastTrainer

SIZES = {
    "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24,
    "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip


class Timed(HTTPEngine):
    """Notes the seconds from pause to resume, and those of the fetch."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.paused_s: list[float] = []
        self.fetch_s: list[float] = []

    def pause(self, mode: str = "abort") -> None:
        self._began = time.perf_counter()
        super().pause(mode)

    def resume(self) -> None:
        super().resume()
        self.paused_s.append(time.perf_counter() - self._began)


class Plain(Timed):
    """Takes no orders: its trainer goes through vLLM's calls."""

    @property
    def order(self) -> None:
        raise AttributeError("order")


def updates(engine: Timed, held: Held, server: str, landing: str, runs: int) -> dict[str, float]:
    sync = WeightcastTrainer.trainer_init(
        TrainerInfo(rank=0, server=server, name=landing, engine={"landing": landing, "replica": f"engine-{landing}"}),
        client=engine, source=held,
    )  # fmt: skip
    seconds = []
    for _ in range(runs + 1):
        change(held)
        began = time.perf_counter()
        sync.send_weights()
        seconds.append(time.perf_counter() - began)
    paused, engine.paused_s = engine.paused_s[1:], []
    sync.shutdown()
    return {"update_s": statistics.median(seconds[1:]), "paused_s": statistics.median(paused)}


def change(held: Held) -> None:
    for parameter in held.parameters():
        parameter.mul_(1.001)


def by_files(engine: Timed, held: Held, directory: Path, runs: int) -> dict[str, float]:
    seconds, paused = [], []
    for _ in range(runs + 1):
        change(held)
        began = time.perf_counter()
        save_file({n: p.data for n, p in held.named_parameters()}, directory / "model.safetensors")
        engine.pause()
        stopped = time.perf_counter()
        engine.on_workers("reload_weights")
        engine.resume()
        paused.append(time.perf_counter() - stopped)
        seconds.append(time.perf_counter() - began)
    return {"update_s": statistics.median(seconds[1:]), "paused_s": statistics.median(paused[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="updates of each way (5)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as place:
        rig = Rig(Path(place))
        try:
            model = Model(Path(place) / "big", SIZES)
            model.save(1)
            held = Held(model.values(1))
            url, server = rig.engine(model.directory).up().url, rig.server.address
            found = {
                "bytes": sum(p.nbytes for p in held.parameters()),
                "fetched_while_generating": updates(Timed(url), held, server, "staged", runs),
                "the_same_by_plain_calls": updates(Plain(url), held, server, "staged", runs),
                # Weights are packed for CPUs: the bytes land beside them even so.
                "fetched_while_paused": updates(Plain(url), held, server, "in_place", runs),
                "files": by_files(Timed(url), held, model.directory, runs),
            }
        finally:
            rig.end()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
