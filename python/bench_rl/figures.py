"""What the updates of one way come to. Pure arithmetic over what the processes said."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

GB = 1e9


@dataclass(frozen=True)
class Spell:
    """What one process did in one update: it stood still from `began` to `ended`."""

    trains: bool
    began: float
    ended: float
    cpu_s: float
    #: Over the links; None on loopback, where nobody can tell whose they are.
    sent: int | None
    received: int | None

    @property
    def stall(self) -> float:
        """Seconds for which it stood still."""
        return self.ended - self.began


@dataclass(frozen=True)
class UpdateFigures:
    """One update, all processes together."""

    rollout_stall_s: float
    trainer_stall_s: float
    longest_stall_s: float
    #: As if all processes went on together, as under drivers that pause all engines and resume all.
    together_stall_s: float
    seconds: float
    cpu_s: float
    server_cpu_s: float
    #: Of each trainer, and of each rank of a rollout; empty on loopback.
    trainers_sent: list[int] = field(default_factory=list)
    rollouts_sent: list[int] = field(default_factory=list)


def update_figures(at: float, spells: Sequence[Spell], server_cpu_s: float) -> UpdateFigures:
    """Of an update that began at a moment, and ends when the last rollout may go on. Trainers train together:
    all of them stand still until the last of them may go on."""
    trainers = [spell for spell in spells if spell.trains]
    rollouts = [spell for spell in spells if not spell.trains]
    together = max(spell.ended for spell in trainers)
    end = max(spell.ended for spell in rollouts)
    return UpdateFigures(
        rollout_stall_s=sum(spell.stall for spell in rollouts),
        trainer_stall_s=sum(together - spell.began for spell in trainers),
        longest_stall_s=max(spell.stall for spell in spells),
        together_stall_s=sum(max(end, together) - spell.began for spell in spells),
        seconds=end - at,
        cpu_s=sum(spell.cpu_s for spell in spells),
        server_cpu_s=server_cpu_s,
        trainers_sent=[spell.sent for spell in trainers if spell.sent is not None],
        rollouts_sent=[spell.sent for spell in rollouts if spell.sent is not None],
    )


def counted(updates: Sequence[UpdateFigures]) -> Sequence[UpdateFigures]:
    """All but the first, which finds nothing prepared."""
    return updates[1:]


def imbalance(sent: Sequence[float]) -> float | None:
    """By what part the busiest sender is above the mean; None where nobody sent."""
    mean = fmean(sent) if sent else 0.0
    return max(sent) / mean - 1 if mean else None


def steps_a_minute(generate: float, train: float, figures: UpdateFigures, staged: bool) -> float:
    """Of a loop with these seconds of work in a step. In place, one thing comes after the other. Staged, the
    next samples are generated while trainers train and bytes move, and only installing them is in the way."""
    if staged:
        return 60 / (max(generate, train, figures.seconds) + figures.longest_stall_s)
    return 60 / (generate + train + figures.seconds)


def mean_of(updates: Sequence[UpdateFigures], rollouts: int, model_bytes: int) -> dict[str, Any]:
    """The mean of all updates but the first, as the report has it."""
    some = counted(updates)

    def mean(name: str) -> float:
        return fmean(getattr(each, name) for each in some)

    trainers = [fmean(column) for column in zip(*(each.trainers_sent for each in some), strict=True)]
    ends = [fmean(column) for column in zip(*(each.rollouts_sent for each in some), strict=True)]
    seconds = mean("seconds")
    return {
        "updates": len(some),
        "total_stall_s": mean("rollout_stall_s") + mean("trainer_stall_s"),
        "rollout_stall_s": mean("rollout_stall_s"),
        "trainer_stall_s": mean("trainer_stall_s"),
        "longest_stall_s": mean("longest_stall_s"),
        "together_stall_s": mean("together_stall_s"),
        "seconds": seconds,
        "gb_per_s": rollouts * model_bytes / seconds / GB,
        "cpu_s": mean("cpu_s") + mean("server_cpu_s"),
        "bytes_sent": sum(trainers) + sum(ends) if trainers else None,
        "trainers_sent": trainers,
        "rollouts_sent": ends,
        "imbalance": imbalance([sent for sent in trainers if sent > MEANT * model_bytes]),
    }


MEANT = 0.02
"""A trainer that sends less than this part of the model only answers calls, and is no sender."""


def ratios(measures: Sequence[dict[str, Any]], base: str) -> list[dict[str, Any]]:
    """Each way's stalls and seconds, in times of those of `base` in the same setting. `together` is the way's
    stall under a driver that resumes all at once, beside that of `base` without such a driver."""
    found = []
    for measure in measures:
        beside = [m for m in measures if m["way"] == base and same_setting(m, measure)]
        if measure["way"] != base and beside:
            times = {name: measure[name] / beside[0][name] for name in COMPARED}
            times["together"] = measure["together_stall_s"] / beside[0]["total_stall_s"]
            setting = {name: measure[name] for name in SETTING}
            found.append({"way": measure["way"], "beside": base, **setting, **times})
    return found


SETTING = "mode", "busy_s", "trainers", "rollouts", "model_bytes"
"""Measures that differ in one of these cannot be compared."""
COMPARED = "total_stall_s", "rollout_stall_s", "seconds"
"""What is compared."""


def same_setting(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two measures may be compared."""
    return all(one[name] == other[name] for name in SETTING)
