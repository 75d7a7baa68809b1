"""One SVG file of a run: a bar for each way, by case and number of readers, in `bench_rl`'s colours."""

from collections.abc import Sequence
from html import escape
from typing import Any

from bench_rl.picture import APART, BAR, COMPARED, LEFT, OURS, RIGHT, WIDTH, number, rectangle, text

from .cases import CASES
from .figures import Measure, middle, ran, setting

TITLE = "Tensors to readers of one host"


def draw(report: dict[str, Any]) -> str:
    """The picture of a report."""
    body, top = [text(20, 24, TITLE, 17, bold=True)], 34.0
    measures = ran(report["measures"])
    for case, readers in dict.fromkeys(setting(each) for each in measures):
        some = sorted((m for m in measures if setting(m) == (case, readers)), key=middle)
        drawn, height = bars(f"{CASES[case].about}, to {readers} readers (s)", some, top)
        body += drawn
        top += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top:.0f}" '
        f'viewBox="0 0 {WIDTH} {top:.0f}" role="img" font-family="Helvetica, Arial, sans-serif">\n'
        f'<title>{escape(TITLE)}</title>\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def bars(heading: str, measures: Sequence[Measure], top: float) -> tuple[list[str], float]:
    """A bar for each way, the shortest first; how high they are together."""
    most = max(middle(m) for m in measures) or 1.0
    drawn, at = [text(20, top + 22, heading, 14, bold=True)], top + 34
    for m in measures:
        value, cpu = middle(m), middle(m, "cpu_s")
        width = (WIDTH - LEFT - RIGHT) * value / most
        tip = f"{m['way']}: {number(value)} s, {number(cpu)} CPU seconds, {number(m['extra_mib'])} MiB more"
        drawn.append(text(LEFT - 6, at + 10, m["way"], 12, anchor="end"))
        drawn.append(
            rectangle(LEFT, at, width, BAR - 2, OURS if m["way"].startswith("weightcast") else COMPARED, tip)
        )
        drawn.append(text(LEFT + width + 4, at + 10, number(value), 11))
        at += BAR + APART / 2
    return drawn, at - top + APART
