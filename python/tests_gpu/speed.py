"""How long weights take from one process's GPU memory into another's, beside the bus and other ways, in one run.

    PYTHONPATH=python python -m tests_gpu.speed --runs 7 --json

`publish` copies out of the GPU, `update` reads host memory of the other process and copies into the GPU. The
floors are one copy of as many bytes between the GPU and page-locked memory, either way. The peers are what
people do by hand: `Tensor.cpu()` of each tensor, and a broadcast over gloo (NCCL refuses two ranks on one GPU).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import weightcast as wc

from .rollout import digest, laid_out, made


def qwen(layers: int, hidden: int, inner: int, kv: int, vocabulary: int) -> dict[str, list[int]]:
    """Shapes of a Qwen2.5 checkpoint by name."""
    shapes = {"embed": [vocabulary, hidden], "norm": [hidden]}
    for i in range(layers):
        for name, shape in {
            "q": [hidden, hidden], "q.bias": [hidden], "k": [kv, hidden], "k.bias": [kv], "v": [kv, hidden],
            "v.bias": [kv], "o": [hidden, hidden], "gate": [inner, hidden], "up": [inner, hidden],
            "down": [hidden, inner], "norm.1": [hidden], "norm.2": [hidden],
        }.items():
            shapes[f"{i}.{name}"] = shape
    return shapes


CASES = {
    "qwen2.5-0.5b": lambda: qwen(24, 896, 4864, 128, 151936),
    "qwen2.5-7b": lambda: qwen(28, 3584, 18944, 512, 152064) | {"lm_head": [152064, 3584]},
}


def timed(call) -> float:
    """Seconds of one call, with all that the GPU had queued."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def floors(nbytes: int, runs: int) -> dict[str, float]:
    """Median seconds of one copy out of the GPU, one into the GPU, and one within host memory."""
    device = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    other = torch.empty(nbytes, dtype=torch.uint8).fill_(1)
    calls = {
        "out": lambda: host.copy_(device, non_blocking=True),
        "in": lambda: device.copy_(host, non_blocking=True),
        "memcpy": lambda: other.copy_(host),
    }
    return {name: statistics.median(timed(call) for _ in range(runs)) for name, call in calls.items()}


class Rollout:
    """The other process."""

    def __init__(self, server: str, way: str, shapes: dict[str, list[int]]) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump(shapes, file)
        self.path = Path(file.name)
        command = [sys.executable, "-m", "tests_gpu.rollout", server, way, file.name]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
        )
        assert self.child.stdin is not None and self.child.stdout is not None
        self.asked, self.said = self.child.stdin, self.child.stdout
        self.said.readline()

    def update(self, version: int, apart: str = "") -> dict:
        """Has it update, or fetch and install; what it says."""
        self.asked.write(f"{version} {apart}\n")
        self.asked.flush()
        return json.loads(self.said.readline())

    def close(self) -> None:
        """Ends it."""
        self.asked.close()
        self.child.wait()
        self.path.unlink()


def weightcast(case: str, way: str, runs: int) -> dict:
    """Median seconds of publish, of update, and of its two halves alone, of one model."""
    shapes = CASES[case]()
    ours = made(shapes, 0.0)
    nbytes = sum(t.nbytes for t in ours.values())
    publish, update, fetch, install = [], [], [], []
    with wc.serve() as server, wc.open(
        "m", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address
    ) as trainer:
        start = time.perf_counter()
        trainer.register(laid_out(ours), deadline=300)
        registering = time.perf_counter() - start
        rollout = Rollout(server.address, way, shapes)
        for version in range(2 * runs + 1):
            for tensor in ours.values():
                tensor.normal_()
            seconds = timed(lambda: trainer.publish(version, deadline=300))  # noqa: B023
            apart = version > runs
            moved = rollout.update(version, "apart" if apart else "")
            assert moved["digest"] == digest(ours), "wrong bytes arrived"
            trainer.unpublish(deadline=300)
            if version:  # the first one plans and warms up
                publish.append(seconds)
                (fetch if apart else update).append(moved["seconds"])
            if apart:
                install.append(moved["install_s"])
        rollout.close()
    floor = floors(nbytes, runs)
    median = {"publish": statistics.median(publish), "update": statistics.median(update)}
    halves = {"fetch_s": statistics.median(fetch), "install_s": statistics.median(install)}
    return {
        "case": case, "way": way, "bytes": nbytes, "tensors": len(shapes), "register_s": registering,
        "publish_s": median["publish"], "update_s": median["update"], "floor_s": floor,
        **halves,
        "publish_of_floor": floor["out"] / median["publish"],
        "install_of_floor": floor["in"] / halves["install_s"],
        "update_of_floor": (floor["memcpy"] + floor["in"]) / median["update"],
        "gb_s": nbytes / (median["publish"] + median["update"]) / 1e9,
    }


def by_hand(case: str, runs: int) -> dict:
    """Median seconds of `cpu()` of each tensor, and of copies from ordinary host memory into the GPU."""
    ours = made(CASES[case](), 0.0)
    out, back = [], []
    for _ in range(runs):
        kept: dict[str, torch.Tensor] = {}
        out.append(timed(lambda: kept.update({n: t.cpu() for n, t in ours.items()})))  # noqa: B023
        back.append(timed(lambda: [ours[n].copy_(t) for n, t in kept.items()]))  # noqa: B023
    return {"case": case, "cpu_s": statistics.median(out), "copy_in_s": statistics.median(back)}


def broadcast(rank: int, case: str, runs: int, meeting: str, answer) -> None:
    """One rank of a broadcast over gloo of each tensor on the GPU."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    ours = made(CASES[case](), float(rank))
    seconds = []
    for _ in range(runs + 1):
        dist.barrier()
        seconds.append(timed(lambda: [dist.broadcast(t, 0) for t in ours.values()]))
    if rank == 1:
        answer.put(statistics.median(seconds[1:]))
    dist.destroy_process_group()


def gloo(case: str, runs: int) -> dict:
    """Median seconds of a broadcast from one process to another."""
    context = torch.multiprocessing.get_context("spawn")
    answer = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        meeting = os.path.join(directory, "meeting")
        ranks = [context.Process(target=broadcast, args=(r, case, runs, meeting, answer)) for r in range(2)]
        for rank in ranks:
            rank.start()
        median = answer.get()
        for rank in ranks:
            rank.join()
    return {"case": case, "gloo_broadcast_s": median}


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--case", choices=CASES, action="append", help="by default all")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args()
    rows = []
    for case in options.case or CASES:
        rows += [weightcast(case, way, options.runs) for way in ("direct", "tcp")]
        rows.append(by_hand(case, options.runs))
        rows.append(gloo(case, min(3, options.runs)))
        for row in rows[-4:]:
            print(json.dumps(row) if options.json else row, flush=True)


if __name__ == "__main__":
    main()
