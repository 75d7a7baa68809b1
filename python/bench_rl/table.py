"""What is shown of a run in the terminal."""

from collections.abc import Sequence
from typing import Any

HEADINGS = (
    "way", "mode", "senders", "total stall", "rollouts", "trainers", "together", "update", "GB/s",
    "sent", "imbalance", "CPU", "peak", "steps/min",
)

HEADINGS_OF_PARTS = {
    "main": "each way",
    "busy": "one rollout is busy when the update begins",
    "sweep": "other numbers of trainers",
    "small": "a small model from one trainer over loopback: where point-to-point loses",
}
"""The parts of a run, as they are shown."""
RATIOS = "total_stall_s", "rollout_stall_s", "together", "seconds"


def rows(measures: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each measure, under a row of headings."""
    return [list(HEADINGS), *(row(each) for each in measures)]


def row(measure: dict[str, Any]) -> list[str]:
    """One measure."""
    busy = f", busy {measure['busy_s']:.1f} s" if measure["busy_s"] else ""
    sent, uneven = measure["bytes_sent"], measure["imbalance"]
    return [
        measure["way"],
        measure["mode"] + busy,
        str(measure["trainers"]),
        seconds(measure["total_stall_s"]),
        seconds(measure["rollout_stall_s"]),
        seconds(measure["trainer_stall_s"]),
        seconds(measure["together_stall_s"]),
        seconds(measure["seconds"]),
        f"{measure['gb_per_s']:.3f}",
        "" if sent is None else f"{sent / 1e6:.0f} MB",
        "" if uneven is None else f"{100 * uneven:.1f} %",
        seconds(measure["cpu_s"]),
        f"{measure['trainer_peak_mib']:.0f}, {measure['rollout_peak_mib']:.0f} MiB",
        f"{measure['steps_a_minute']:.1f}",
    ]


def simulated_rows(simulated: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each number of trainers."""
    return [
        ["senders", "rollouts", "update", "GB/s"],
        *(
            [
                str(each["trainers"]),
                seconds(each["rollout_stall_s"]),
                seconds(each["seconds"]),
                f"{each['gb_per_s']:.3f}",
            ]
            for each in simulated
        ),
    ]


def ratio_rows(ratios: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each way and setting."""
    return [
        ["way", "mode", "senders", "total stall", "rollouts", "together", "update"],
        *(
            [
                each["way"],
                each["mode"] + (f", busy {each['busy_s']:.1f} s" if each["busy_s"] else ""),
                str(each["trainers"]),
                *(f"{each[name]:.2f}" for name in RATIOS),
            ]
            for each in ratios
        ),
    ]


def seconds(value: float) -> str:
    """As people read them."""
    return f"{1000 * value:.1f} ms" if value < 0.1 else f"{value:.2f} s"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Columns side by side."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table]
    return "\n".join("  ".join(row).rstrip() for row in padded)


def markdown(table: Sequence[Sequence[str]]) -> str:
    """The same for a page."""
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]])
