"""The updates of one way: set up, so many versions, each verified, and what that came to."""

import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .figures import Spell, UpdateFigures, counted, mean_of, steps_a_minute, update_figures
from .fleet import Fleet
from .model import size

LEAD = 0.15
"""Seconds in which an order reaches all processes, so that they begin together."""


@dataclass(frozen=True)
class Case:
    """What is to be measured."""

    way: str
    staged: bool
    updates: int
    #: Seconds for which the rollout in the middle is busy when an update begins.
    busy: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


def measure(fleet: Fleet, case: Case) -> dict[str, Any]:
    """Measures it."""
    settings = fleet.settings
    fleet.openings += 1
    task = {"name": f"{fleet.openings}", "options": case.options}
    opened = fleet.order("open", way=case.way, task=task, staged=case.staged)
    updates, tensors = [], 0
    for _ in range(case.updates):
        fleet.versions += 1
        fleet.order("fill", fleet.trainers, version=fleet.versions)
        updates.append(update(fleet, case, fleet.versions))
        tensors += fleet.verify(fleet.versions)
    closed = [answer["peak_mib"] for answer in fleet.order("close")]
    some = counted(updates)
    steps = [steps_a_minute(settings.generate, settings.train, each, case.staged) for each in some]
    return {
        "way": case.way,
        "mode": "staged" if case.staged else "in-place",
        "busy_s": case.busy,
        "trainers": settings.trainers,
        "trainer": settings.trainer,
        "rollouts": settings.rollouts,
        "rollout_tp": settings.rollout_tp,
        "rate": fleet.where.rate,
        "model_bytes": size(fleet.shapes),
        "options": case.options,
        "set_up_s": max(answer["seconds"] for answer in opened),
        **mean_of(updates, settings.rollouts, size(fleet.shapes)),
        "steps_a_minute": fmean(steps),
        "trainer_peak_mib": max(closed[: settings.trainers]),
        "rollout_peak_mib": max(closed[settings.trainers :]),
        "tensors_verified": tensors,
    }


def update(fleet: Fleet, case: Case, version: int) -> UpdateFigures:
    """One update of all."""
    cpu = fleet.server_cpu()
    at = time.monotonic() + LEAD
    for worker, place in zip(fleet.workers, fleet.places, strict=True):
        busy = case.busy if place.replica == f"rollout-{fleet.settings.rollouts // 2}" else 0.0
        worker.tell({"do": "update", "version": version, "at": at, "busy": busy})
    answers = fleet.gather(fleet.workers)
    costs = fleet.order("count")
    linked = fleet.where.rate is not None
    first_on_host = [place.rank % place.per_host == 0 for place in fleet.places]
    spells = [
        Spell(
            place.role == "trainer",
            answer["began"],
            answer["ended"],
            cost["cpu_s"],
            cost["sent"] if linked and first else None,
            cost["received"] if linked and first else None,
        )
        for place, answer, cost, first in zip(fleet.places, answers, costs, first_on_host, strict=True)
    ]
    return update_figures(at, spells, fleet.server_cpu() - cpu)
