"""What is shown of a run in the terminal and on the page."""

from collections.abc import Sequence
from typing import Any

from bench_rl.table import aligned, markdown, seconds

from .figures import Measure, middle, ran, speed, spread, times_ours

HEADINGS = (
    "way", "readers", "time", "shortest to longest", "of weightcast's", "GB/s", "sender free", "CPU",
    "extra memory", "set-up", "first", "n",
)  # fmt: skip


def rows(measures: Sequence[Measure], case: str) -> list[list[str]]:
    """A row for each way and number of readers of a case, under a row of headings; by readers and time."""
    some = [each for each in ran(measures) if each["case"] == case]
    some.sort(key=lambda each: (each["readers"], middle(each)))
    return [list(HEADINGS), *(row(each, measures) for each in some)]


def row(measure: Measure, measures: Sequence[Measure]) -> list[str]:
    """One measure."""
    times, (shortest, longest) = times_ours(measure, measures), spread(measure)
    return [
        measure["way"],
        str(measure["readers"]),
        seconds(middle(measure)),
        f"{seconds(shortest)} to {seconds(longest)}",
        "" if times is None else f"{times:.2f}",
        f"{speed(measure):.2f}",
        seconds(middle(measure, "sender_s")),
        seconds(middle(measure, "cpu_s")),
        f"{measure['extra_mib']:,.0f} MiB",
        seconds(measure["set_up_s"]),
        seconds(measure["first_s"]),
        str(len(measure["transfers"])),
    ]


def missing_rows(measures: Sequence[Measure]) -> list[list[str]]:
    """What has no figures, and why; one row for each way and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in measures:
        if why := each.get("not_run") or each.get("wrong"):
            reasons.setdefault((each["way"], why), []).append(f"{each['case']} to {each['readers']}")
    return [
        ["way", "not run", "why"],
        *([way, ", ".join(where), why] for (way, why), where in reasons.items()),
    ]


def ahead_rows(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Where another way is ahead."""
    return [
        ["case", "readers", "way", "its time, of ours", "ours"],
        *(
            [each["case"], str(each["readers"]), each["way"], f"{each['times']:.2f}", each["ours"]]
            for each in found
        ),
    ]


def promise_rows(kept: Sequence[dict[str, Any]]) -> list[list[str]]:
    """What was promised."""
    return [
        ["of 1 GB to 8 readers", "ratio", "promised", ""],
        *(
            [
                f"{each['ours']} by {each['way']}",
                f"{each['ratio']:.2f}",
                f"{each['most']:g} at most",
                "kept" if each["kept"] else "missed",
            ]
            for each in kept
        ),
    ]


__all__ = [
    "HEADINGS",
    "ahead_rows",
    "aligned",
    "markdown",
    "missing_rows",
    "promise_rows",
    "row",
    "rows",
    "seconds",
]
