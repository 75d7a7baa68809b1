"""Jobs of several ranks in processes of their own, and engines that hold what the ranks train."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

import weightcast as wc

from .conftest import SOON


@contextmanager
def ranks(program: ModuleType, world: int, *arguments: str, **environment: str) -> Iterator[None]:
    """Runs a program on each of so many ranks; all of them end well."""
    file = Path(str(program.__file__))
    command = [sys.executable, "-m", f"{file.parents[1].name}.programs.{file.stem}"]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(world), *arguments],
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        yield
        for rank in started:
            _, errors = rank.communicate(timeout=15 * SOON)
            assert rank.returncode == 0, errors
    finally:
        for rank in started:
            rank.kill()
            _, errors = rank.communicate(timeout=SOON)
            print(errors or "", file=sys.stderr)  # shown if the test fails


def chunk(tensor: torch.Tensor, dim: int, index: int, of: int) -> torch.Tensor:
    """As torch cuts unevenly; `torch.chunk` leaves out what is empty."""
    size, each = tensor.shape[dim], -(-tensor.shape[dim] // of)
    start = min(index * each, size)
    return tensor.narrow(dim, start, min(each, size - start)).contiguous()


def engine_shards(
    tensors: dict[str, torch.Tensor], shards: int, cuts: dict[str, int]
) -> list[dict[str, tuple[int | None, torch.Tensor]]]:
    """What each shard of an engine should hold of these tensors, and along which dimension it is cut."""
    return [
        {
            name: (
                cuts.get(name),
                chunk(tensor, cuts[name], shard, shards) if name in cuts else tensor,
            )
            for name, tensor in tensors.items()
        }
        for shard in range(shards)
    ]


def empty_engine(
    tensors: dict[str, torch.Tensor], shards: int, cuts: dict[str, int]
) -> tuple[list[dict[str, torch.Tensor]], list[wc.Layout]]:
    """Memory of an engine, and its layouts."""
    memories, layouts = [], []
    for at, shard in enumerate(engine_shards(tensors, shards, cuts)):
        memory = {name: torch.zeros_like(tensor) for name, (_, tensor) in shard.items()}
        layout = wc.Layout()
        for name, (dim, _) in shard.items():
            shape = tensors[name].shape
            whole = dim is None
            layout.add(
                memory[name],
                wc.part(name, shape=shape) if whole else wc.part(name, shape=shape, dim=dim, index=at, of=shards),
            )
        memories.append(memory)
        layouts.append(layout)
    return memories, layouts
