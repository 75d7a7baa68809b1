"""Measures how long a vLLM server stands still for an update of a model of the size of Qwen2.5-0.5B, on this
machine. Of an engine whose parameters are as they were loaded, as on GPUs: bytes that land in the parameters, bytes that land
beside them while the engine stands still, and bytes that land there while it generates. Of one whose linear weights are
packed, as vLLM does on CPUs: fetched while it generates (by orders of a fleet's driver, and by vLLM's plain calls), fetched
while it stands still, and the same weights written to files and loaded by vLLM's own reload. Prints a JSON object; needs 8 GB
of memory and 1 GB of disk.

    python -m tests_vllm.live.pause [--runs 5]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tests_vllm  # noqa: F401

# isort: split

from safetensors.torch import save_file

from tests_vllm.live.rig import Rig
from tests_vllm.live.weights import Held, Model
from weightcast.adapters.engine import EngineState, fleet
from weightcast.adapters.vllm import HTTPEngine, TrainerInfo, WeightcastTrainer

SIZES = {
    "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24,
    "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip


class Timed(HTTPEngine):
    """Notes the seconds from pause to resume, and those from the first call to fetch to the answer that all has come."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.paused_s: list[float] = []
        self.fetch_s: list[float] = []
        self._attempt: object = None

    def order(self, order: dict[str, Any]) -> list[dict[str, Any] | None]:
        if order["step"] != "Fetch":
            return super().order(order)
        if order["attempt"] != self._attempt:
            self._attempt, self._fetching = order["attempt"], time.perf_counter()
        said = super().order(order)
        if all(each is not None and each["answers"] for each in said):
            self.fetch_s.append(time.perf_counter() - self._fetching)
        return said

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

    def update_weights(self, update_info: Any) -> None:
        self._fetching = time.perf_counter()
        super().update_weights(update_info)
        if update_info.get("wait"):
            self.fetch_s.append(time.perf_counter() - self._fetching)

    def states(self) -> list[EngineState]:
        said = super().states()
        if all(state.fetched is not None for state in said):
            self.fetch_s.append(time.perf_counter() - self._fetching)
        return said


@contextmanager
def without_prefetch() -> Iterator[None]:
    """Fleets whose engines fetch once they stand still; trainers have no such setting."""
    config = fleet._config
    fleet._config = lambda *said: config(*said) | {"prefetch": False}
    try:
        yield
    finally:
        fleet._config = config


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
    sync.shutdown()
    assert len(engine.paused_s) == len(engine.fetch_s) == runs + 1
    return {
        "bytes": sum(p.nbytes for p in held.parameters()),
        "update_s": statistics.median(seconds[1:]),
        "fetch_s": statistics.median(engine.fetch_s[1:]),
        "paused_s": statistics.median(engine.paused_s[1:]),
    }


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


def of_an_engine_as_loaded(url: str, held: Held, server: str, runs: int) -> dict[str, dict[str, float]]:
    found = {"in_place": updates(Plain(url), held, server, "in_place", runs)}
    with without_prefetch():
        found["staged"] = updates(Timed(url), held, server, "staged", runs)
    return found | {"prefetched": updates(Timed(url), held, server, "staged", runs)}


def of_a_packed_engine(url: str, held: Held, server: str, directory: Path, runs: int) -> dict[str, dict[str, float]]:
    return {
        "fetched_while_generating": updates(Timed(url), held, server, "staged", runs),
        "the_same_by_plain_calls": updates(Plain(url), held, server, "staged", runs),
        # The bytes land beside packed weights even so.
        "fetched_while_paused": updates(Plain(url), held, server, "in_place", runs),
        "files": by_files(Timed(url), held, directory, runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="updates of each way (5)")
    parser.add_argument("--tiny", action="store_true", help="a tiny model: whether all of this works")
    said = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as place:
        rig = Rig(Path(place))
        try:
            model = Model(Path(place) / "big") if said.tiny else Model(Path(place) / "big", SIZES)
            model.save(1)
            held, server = Held(model.values(1)), rig.server.address
            engine = rig.engine(model.directory, unpacked=True).up()
            found["as_loaded"] = of_an_engine_as_loaded(engine.url, held, server, said.runs)
            engine.kill()
            engine = rig.engine(model.directory).up()
            found["packed"] = of_a_packed_engine(engine.url, held, server, model.directory, said.runs)
        finally:
            rig.end()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
