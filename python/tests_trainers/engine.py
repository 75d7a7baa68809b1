"""An engine that holds a published checkpoint cut over its ranks, as vLLM cuts: fused rows of queries, keys
and values, of gates and ups; columns of what follows; the vocabulary by rows; or whole experts by rank."""

import threading
from collections.abc import Callable
from typing import Any

import torch

import weightcast as wc
from weightcast.testing import fp8

from .ranks import SOON

#: Shape and type of each tensor of a checkpoint.
Checkpoint = dict[str, tuple[tuple[int, ...], torch.dtype]]

#: Blocks of FP8, at whose edges no trainer's shard ends.
BLOCK = (12, 10)

ROWS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_proj.bias", "k_proj.bias", "v_proj.bias",
        "gate_proj.weight", "up_proj.weight", "embed_tokens.weight", "lm_head.weight")
COLUMNS = ("o_proj.weight", "down_proj.weight")
#: What lies in one tensor, by the ends of their names.
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Shard:
    """What one rank of an engine holds."""

    def __init__(self, checkpoint: Checkpoint, rank: int, of: int, by_expert: bool) -> None:
        self._rank, self._of, self._by_expert = rank, of, by_expert
        self.layout = wc.Layout()
        #: Views of what is held: name, first index and length by dimension.
        self.held: list[tuple[str, list[int], list[int], torch.Tensor]] = []
        shapes = {name: shape for name, (shape, _) in checkpoint.items()}
        for names in _fused(shapes):
            self._add(shapes, names, checkpoint[names[0]][1])

    def _add(self, shapes: dict[str, tuple[int, ...]], names: list[str], dtype: torch.dtype) -> None:
        boxes = [self._box(name, shapes[name]) for name in names]
        if not all(boxes):
            return
        rows = sum(length[0] for _, length in boxes)
        tensor = torch.zeros((rows, *boxes[0][1][1:]), dtype=dtype)
        parts, at = [], 0
        for name, (start, length) in zip(names, boxes, strict=True):
            self.held.append((name, start, length, tensor[at : at + length[0]]))
            at += length[0]
            dim = next((d for d, n in enumerate(shapes[name]) if n != length[d]), 0)
            parts.append(wc.part(name, dim=dim, start=start[dim], length=length[dim], shape=shapes[name]))
        self.layout.add(tensor, parts)

    def copies(self) -> list[tuple[str, list[int], list[int], torch.Tensor]]:
        """What is held, as a process can send: the tensors themselves would get other storage."""
        return [(name, start, length, view.clone()) for name, start, length, view in self.held]

    def _box(self, name: str, shape: tuple[int, ...]) -> tuple[list[int], list[int]] | None:
        start, length = [0] * len(shape), list(shape)
        expert = name.partition(".experts.")[2].partition(".")[0]
        if self._by_expert:
            return None if expert and int(expert) % self._of != self._rank else (start, length)
        cut = 0 if name.endswith(ROWS) else 1 if name.endswith(COLUMNS) else None
        if cut is not None and self._of > 1:
            each = -(-shape[cut] // self._of)
            start[cut] = min(self._rank * each, shape[cut])
            length[cut] = min(each, shape[cut] - start[cut])
        return (start, length) if length[0] else None


def _fused(shapes: dict[str, tuple[int, ...]]) -> list[list[str]]:
    """The names of each tensor of the engine."""
    lists: dict[str, list[str]] = {}
    for name in shapes:
        key = name
        for members in FUSED:
            for member in members:
                key = key.replace(member, members[0])
        lists.setdefault(key, []).append(name)
    return list(lists.values())


def serve(
    say: Callable, hear: Callable, address: str, checkpoint: Checkpoint, ways: dict[str, tuple[int, bool]]
) -> None:
    """Engines of several ways, `name: (ranks, by expert)`: each rank in a thread of this process. At each
    word from the test, updates all, and says which version and what they hold."""
    engines = {
        name: [Shard(checkpoint, rank, of, by_expert) for rank in range(of)] for name, (of, by_expert) in ways.items()
    }
    opened: dict[tuple[str, int], wc.Handle] = {}

    def start(name: str, rank: int, shard: Shard) -> None:
        handle = wc.open("policy", wc.Replica(name, rank, len(engines[name])), server=address)
        handle.register(shard.layout, deadline=SOON)
        opened[name, rank] = handle

    _each(engines, start)
    while (step := hear()) is not None:
        def update(name: str, rank: int, shard: Shard, step: int = step) -> None:
            opened[name, rank].update(wc.exact(step), deadline=SOON)

        _each(engines, update)
        say({name: [shard.copies() for shard in shards] for name, shards in engines.items()})
    for handle in opened.values():
        handle.close(deadline=1.0)
    say(None)


def _each(engines: dict[str, list[Shard]], call: Callable) -> None:
    errors: list[BaseException] = []

    def run(*arguments: Any) -> None:
        try:
            call(*arguments)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(name, rank, shard))
        for name, shards in engines.items() for rank, shard in enumerate(shards)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def checkpoint_of(tensors: dict[str, torch.Tensor]) -> Checkpoint:
    """What a checkpoint of these tensors has."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def in_fp8(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with projections in FP8, made by torch of the whole tensors."""
    made = {}
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            made[name], made[name + "_scale_inv"] = fp8.quantise(tensor, BLOCK)
        else:
            made[name] = tensor
    return made


def compare(held: dict[str, list], expected: dict[str, torch.Tensor]) -> None:
    """Every engine has every element of every tensor, to the bit."""
    for engine, shards in held.items():
        seen = {name: torch.zeros(tensor.shape, dtype=torch.bool) for name, tensor in expected.items()}
        for shard in shards:
            for name, start, length, tensor in shard:
                box = tuple(slice(s, s + n) for s, n in zip(start, length, strict=True))
                wanted = expected[name][box]
                assert tensor.dtype == wanted.dtype, name
                same = torch.equal(tensor.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))
                assert same, f"{engine}: {name} {box}"
                seen[name][box] = True
        assert all(each.all() for each in seen.values()), engine
