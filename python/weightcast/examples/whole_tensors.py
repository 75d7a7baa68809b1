"""A trainer whose engines want tensors that are made of whole ones: LoRA merged, projections joined.

Measures it: seconds of a refresh with the stages side by side and one after the other, and the most bytes
under way beside the budget.

    python -m weightcast.examples.whole_tensors --ranks 2 --layers 8 --hidden 1024 --budget 64
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import weightcast.torch as wct

MIB = 1 << 20


class Layer(nn.Module):
    """A layer's projections, and an adapter of one of them."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        for name in ("q", "k", "v"):
            self.add_module(name, nn.Linear(hidden, hidden, bias=False))
        self.a, self.b = nn.Linear(hidden, 16, bias=False), nn.Linear(16, hidden, bias=False)
        self.norm = nn.Parameter(torch.ones(hidden))


def merged(*parts: torch.Tensor) -> torch.Tensor:
    """What an engine calls `qkv`: the adapter merged into `q`, all three joined, in BF16."""
    q, k, v, a, b = parts
    return torch.cat([(q + b @ a).to(torch.bfloat16), k.to(torch.bfloat16), v.to(torch.bfloat16)])


def model_of(layers: int, hidden: int) -> nn.Module:
    """A sharded module."""
    torch.manual_seed(0)
    module = nn.Module()
    module.layers = nn.ModuleList(Layer(hidden) for _ in range(layers))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in module.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def recipes() -> list[wct.Recipe]:
    """What engines want, made of what the trainer has."""
    return [wct.recipe("layers.*.qkv.weight", [f"layers.*.{x}.weight" for x in "qkvab"], merged)]


def measured(rank: int, asked: argparse.Namespace, directory: str) -> None:
    """One rank: refreshes in turns, with and without overlap."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=asked.ranks
    )
    module, budget = model_of(asked.layers, asked.hidden), int(asked.budget * MIB)
    sources = {
        overlap: wct.gathered(module, recipes(), budget=budget, overlap=overlap) for overlap in (True, False)
    }
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(asked.times + 1):
        for overlap, source in sources.items():
            dist.barrier()
            began = time.monotonic()
            source.refresh()
            if turn:  # the first one touches memory for the first time
                seconds[overlap].append(time.monotonic() - began)
    mine = {
        "rank": rank,
        "made_bytes": sources[True].nbytes,
        "budget_bytes": budget,
        "largest_bytes": max((p.item(_tensors(module, p)).peak for p in sources[True]._planned), default=0),
        **{f"peak_bytes_{_name(overlap)}": source.peak for overlap, source in sources.items()},
        **{f"seconds_{_name(overlap)}": statistics.median(times) for overlap, times in seconds.items()},
    }
    heard: list[Any] = [None] * asked.ranks
    dist.all_gather_object(heard, mine)
    if rank == 0:
        print(json.dumps({"schema": "whole-tensors/1", "ranks": heard}) if asked.json else table(heard))
    dist.destroy_process_group()


def _tensors(module: nn.Module, planned: Any) -> list[torch.Tensor]:
    return [module.get_parameter(name) for name in planned.product.inputs]


def _name(overlap: bool) -> str:
    return "side_by_side" if overlap else "one_by_one"


def table(ranks: list[dict[str, Any]]) -> str:
    """The figures for people."""
    columns = ("rank", "made MiB", "budget MiB", "largest MiB", "peak MiB", "side by side s", "one by one s")
    lines = ["  ".join(columns)]
    for one in ranks:
        sizes = ("made_bytes", "budget_bytes", "largest_bytes", "peak_bytes_side_by_side")
        figures = [one[size] for size in sizes]
        cells = [str(one["rank"]), *(f"{figure / MIB:.1f}" for figure in figures)]
        cells += [f"{one['seconds_side_by_side']:.3f}", f"{one['seconds_one_by_one']:.3f}"]
        lines.append("  ".join(cell.rjust(len(name)) for cell, name in zip(cells, columns, strict=True)))
    return "\n".join(lines)


def main() -> None:
    """Starts the ranks."""
    parser = argparse.ArgumentParser(prog="python -m weightcast.examples.whole_tensors", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--budget", type=float, default=64, help="MiB under way at one time on each rank")
    parser.add_argument("--times", type=int, default=5, help="refreshes that are measured each way")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(measured, args=(asked, directory), nprocs=asked.ranks)


if __name__ == "__main__":
    main()
