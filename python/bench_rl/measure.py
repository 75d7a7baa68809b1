"""The updates of one way: set up, so many versions, each verified, and what that came to."""

import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .crew import Crew
from .figures import Spell, UpdateFigures, counted, mean_of, steps_a_minute, update_figures
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


def measure(crew: Crew, case: Case) -> dict[str, Any]:
    """Measures it."""
    settings = crew.settings
    crew.openings += 1
    task = {"name": f"{crew.openings}", "options": case.options}
    opened = crew.order("open", way=case.way, task=task, staged=case.staged)
    updates, tensors = [], 0
    for _ in range(case.updates):
        crew.versions += 1
        crew.order("fill", crew.trainers, version=crew.versions)
        updates.append(update(crew, case, crew.versions))
        tensors += crew.verify(crew.versions)
    closed = [answer["peak_mib"] for answer in crew.order("close")]
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
        "rate": crew.where.rate,
        "model_bytes": size(crew.shapes),
        "options": case.options,
        "set_up_s": max(answer["seconds"] for answer in opened),
        **mean_of(updates, settings.rollouts, size(crew.shapes)),
        "steps_a_minute": fmean(steps),
        "trainer_peak_mib": max(closed[: settings.trainers]),
        "rollout_peak_mib": max(closed[settings.trainers :]),
        "tensors_verified": tensors,
    }


def update(crew: Crew, case: Case, version: int) -> UpdateFigures:
    """One update of all."""
    cpu = crew.server_cpu()
    at = time.monotonic() + LEAD
    for worker, place in zip(crew.workers, crew.places, strict=True):
        busy = case.busy if place.replica == f"rollout-{crew.settings.rollouts // 2}" else 0.0
        worker.tell({"do": "update", "version": version, "at": at, "busy": busy})
    answers = crew.gather(crew.workers)
    costs = crew.order("count")
    linked = crew.where.rate is not None
    first_on_host = [place.rank % place.per_host == 0 for place in crew.places]
    spells = [
        Spell(
            place.role == "trainer",
            answer["began"],
            answer["ended"],
            cost["cpu_s"],
            cost["sent"] if linked and first else None,
            cost["received"] if linked and first else None,
        )
        for place, answer, cost, first in zip(crew.places, answers, costs, first_on_host, strict=True)
    ]
    return update_figures(at, spells, crew.server_cpu() - cpu)
