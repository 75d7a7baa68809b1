"""Which trainer rank stages what for whom, where each staging holds what one rank of an engine takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Staging:
    """Host memory of one trainer rank, in the structure of one engine rank: the tensors of a pipeline stage
    as that rank has them. Engines are alike, so each engine's rank of this number takes the same bytes."""

    #: The engine rank whose structure it has.
    structure: int
    #: Who takes it: ranks counted over all engines, engine after engine.
    targets: tuple[int, ...]


def stages_of(trainers: int, stages: int) -> list[range]:
    """The ranks of each pipeline stage, where stages are the outermost dimension of the trainer's ranks."""
    if stages < 1 or trainers < 1 or trainers % stages:
        raise ValueError(f"{trainers} trainer ranks do not make {stages} pipeline stages of one size")
    size = trainers // stages
    return [range(first, first + size) for first in range(0, trainers, size)]


def assign(
    stages: Sequence[Sequence[int]], engines: int, engine_ranks: int
) -> Mapping[int, tuple[Staging, ...]]:
    """By trainer rank, the stagings that it fills and sends, one after the other in the same memory.

    `stages` are the ranks of each pipeline stage; a rank in several serves each of them. Every rank of every
    engine is a target once for each stage. Within a stage no rank serves more than one target more than
    another; of all ways of that, a rank has as few structures as neighbours in the list below give:
    structures one after the other, the engines of each within, cut into as many runs as there are ranks.
    """
    if engines < 1 or engine_ranks < 1 or not all(stages):
        raise ValueError(
            f"{engines} engines of {engine_ranks} ranks, stages {[len(ranks) for ranks in stages]}: each of "
            "them needs one rank at least"
        )
    served = [(rank, engine) for rank in range(engine_ranks) for engine in range(engines)]
    found: dict[int, list[Staging]] = {}
    for ranks in stages:
        for number, trainer in enumerate(ranks):
            first, last = (len(served) * n // len(ranks) for n in (number, number + 1))
            found.setdefault(trainer, []).extend(_stagings(served[first:last], engine_ranks))
    return {trainer: tuple(stagings) for trainer, stagings in found.items()}


def _stagings(served: list[tuple[int, int]], engine_ranks: int) -> list[Staging]:
    by_structure: dict[int, list[int]] = {}
    for rank, engine in served:
        by_structure.setdefault(rank, []).append(engine * engine_ranks + rank)
    return [Staging(structure, tuple(targets)) for structure, targets in by_structure.items()]
