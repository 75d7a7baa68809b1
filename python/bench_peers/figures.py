"""What measures come to. Pure arithmetic over a report."""

from collections.abc import Sequence
from statistics import median
from typing import Any

GB = 1e9
OURS, OURS_SHARED, OURS_TCP = "weightcast", "weightcast-shared", "weightcast-tcp"
LEVEL = 1.0
"""Times as long as ours below which another way is ahead."""
Measure = dict[str, Any]


def ran(measures: Sequence[Measure]) -> list[Measure]:
    """Those that have figures."""
    return [each for each in measures if each.get("transfers")]


def middle(measure: Measure, what: str = "seconds") -> float:
    """The median of its transfers."""
    return float(median(each[what] for each in measure["transfers"]))


def spread(measure: Measure) -> tuple[float, float]:
    """The shortest and the longest transfer."""
    times = [each["seconds"] for each in measure["transfers"]]
    return min(times), max(times)


def speed(measure: Measure) -> float:
    """GB a second into all readers together."""
    return float(measure["readers"] * measure["bytes"] / middle(measure) / GB)


def beside(measure: Measure, measures: Sequence[Measure], way: str) -> Measure | None:
    """What another way came to in the same case with as many readers."""
    same = [each for each in ran(measures) if each["way"] == way and setting(each) == setting(measure)]
    return same[0] if same else None


def setting(measure: Measure) -> tuple[str, int]:
    """What has to be equal before two measures may be compared."""
    return measure["case"], measure["readers"]


def times_ours(measure: Measure, measures: Sequence[Measure], ours: str = OURS) -> float | None:
    """How many times as long as ours a transfer takes."""
    base = beside(measure, measures, ours)
    return middle(measure) / middle(base) if base else None


def ahead(measures: Sequence[Measure], tcp_ways: Sequence[str]) -> list[dict[str, Any]]:
    """Where another way is faster: any than `weightcast` and `weightcast-shared`, any over TCP than
    `weightcast-tcp`."""
    found = []
    for measure in ran(measures):
        for ours in (OURS, OURS_SHARED, *([OURS_TCP] if measure["way"] in tcp_ways else [])):
            times = times_ours(measure, measures, ours)
            if measure["way"] not in (OURS, OURS_SHARED, OURS_TCP) and times is not None and times < LEVEL:
                case, readers = setting(measure)
                found.append(
                    {"way": measure["way"], "ours": ours, "case": case, "readers": readers, "times": times}
                )
    return found


PROMISES = (
    ("ray", OURS, 0.8),
    ("ray", OURS_SHARED, 0.8),
    ("sockets", OURS, 1.0),
    ("sockets", OURS_TCP, 1.0),
)
"""Of 1 GB to eight readers: beside whom, which of ours, how many of its times at most."""


def promises(
    measures: Sequence[Measure], case: str = "qwen2.5-0.5b", readers: int = 8
) -> list[dict[str, Any]]:
    """What was promised, and what came; nothing of a way that was not measured."""
    kept = []
    for way, ours, most in PROMISES:
        some = [m for m in ran(measures) if m["way"] == way and setting(m) == (case, readers)]
        times = times_ours(some[0], measures, ours) if some else None
        if times is not None:
            kept.append(
                {"way": way, "ours": ours, "most": most, "ratio": 1 / times, "kept": 1 / times <= most}
            )
    return kept
