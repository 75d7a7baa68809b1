"""One SVG file of a run: stalls of each way, alone and beside a busy rollout; speed by number of trainers.

In the colours of `weightcast plot`, and like its pictures without any other program; the same report always
gives the same bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, GAP = 900, 170, 70, 46
BAR, APART = 13, 10
HEIGHT = 220
"""Of a chart of curves."""
OURS, COMPARED, GRID, TEXT = "#0072b2", "#d55e00", "#e4e4e4", "#222222"
OTHERS = "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#d55e00"


@dataclass(frozen=True)
class Curve:
    """Speed of a way by the number of trainers."""

    name: str
    points: list[tuple[float, float]]
    dashed: bool = False


def draw(report: dict[str, Any]) -> str:
    """The picture of a report."""
    measures = report["measures"]
    body: list[str] = []
    top = 34.0
    body.append(text(20, 24, title(measures), 17, bold=True))
    for heading, part, mode in (
        ("Total stall of an update, in place (s)", "main", "in-place"),
        ("Total stall, in place, while one rollout is busy (s)", "busy", "in-place"),
        ("Total stall, staged (s)", "main", "staged"),
    ):
        some = [m for m in measures if m["part"] == part and m["mode"] == mode]
        if some:
            drawn, height = bars(heading, some, top)
            body += drawn
            top += height
    if lines := curves_of(measures, report.get("simulated", [])):
        drawn, height = chart("GB/s to all rollouts, by number of trainers", lines, top)
        body += drawn
        top += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top:.0f}" '
        f'viewBox="0 0 {WIDTH} {top:.0f}" role="img" font-family="Helvetica, Arial, sans-serif">\n'
        f'<title>{escape(title(measures))}</title>\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def title(measures: Sequence[dict[str, Any]]) -> str:
    """What was moved, and over what."""
    if not measures:
        return "nothing was measured"
    first = measures[0]
    links = f"links of {first['rate']}" if first["rate"] else "loopback"
    who = f"{first['trainers']} trainers to {first['rollouts']} rollouts"
    return f"{first['model_bytes'] / 1e6:.1f} MB from {who}, {links}"


def bars(heading: str, measures: Sequence[dict[str, Any]], top: float) -> tuple[list[str], float]:
    """A bar for each way; how high they are together."""
    most = max(m["total_stall_s"] for m in measures) or 1.0
    drawn = [text(20, top + 22, heading, 14, bold=True)]
    at = top + 34
    for m in measures:
        value, ours = m["total_stall_s"], m["way"].startswith("weightcast")
        width = (WIDTH - LEFT - RIGHT) * value / most
        tip = f"{m['way']}: {number(value)} s, of that rollouts {number(m['rollout_stall_s'])} s"
        drawn.append(text(LEFT - 6, at + 10, m["way"], 12, anchor="end"))
        drawn.append(rectangle(LEFT, at, width, BAR - 2, OURS if ours else COMPARED, tip))
        drawn.append(text(LEFT + width + 4, at + 10, number(value), 11))
        at += BAR + APART / 2
    return drawn, at - top + APART


def curves_of(measures: Sequence[dict[str, Any]], simulated: Sequence[dict[str, Any]]) -> list[Curve]:
    """A curve for each way that was measured with several numbers of trainers."""
    ways: dict[str, list[tuple[float, float]]] = {}
    for m in measures:
        if m["mode"] == "in-place" and m["part"] in ("main", "sweep"):
            ways.setdefault(m["way"], []).append((m["trainers"], m["gb_per_s"]))
    found = [Curve(way, sorted(points)) for way, points in ways.items() if len(points) > 1]
    if found and simulated:
        points = sorted((s["trainers"], s["gb_per_s"]) for s in simulated)
        found.append(Curve("weightcast-pull, simulated", points, dashed=True))
    return found


def chart(heading: str, curves: Sequence[Curve], top: float) -> tuple[list[str], float]:
    """Curves over a doubling axis."""
    places = sorted({x for curve in curves for x, _ in curve.points})
    most = max(y for curve in curves for _, y in curve.points)
    low, spread = math.log2(places[0]), max(math.log2(places[-1] / places[0]), 1.0)
    base, plot = top + 40 + HEIGHT, WIDTH - LEFT - RIGHT

    def spot(x: float, y: float) -> tuple[float, float]:
        return LEFT + plot * (math.log2(x) - low) / spread, base - HEIGHT * y / most

    drawn = [text(20, top + 22, heading, 14, bold=True)]
    for step in range(5):
        value = most * step / 4
        at = spot(places[0], value)[1]
        drawn.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + plot}" y2="{at:.1f}" stroke="{GRID}"/>')
        drawn.append(text(LEFT - 6, at + 4, number(value), 11, anchor="end"))
    drawn += [text(spot(x, 0)[0], base + 16, f"{x:g}", 11, anchor="middle") for x in places]
    others = iter(OTHERS * len(curves))
    for line, curve in enumerate(curves):
        colour = OURS if curve.name.startswith("weightcast-pull") else next(others)
        spots = [spot(x, y) for x, y in curve.points]
        dashes = ' stroke-dasharray="6 4"' if curve.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>')
        for (x, y), (trainers, speed) in zip(spots, curve.points, strict=True):
            tip = escape(f"{curve.name}, {trainers:g} trainers: {number(speed)} GB/s")
            shape = f'circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"'
            drawn.append(f"<{shape}><title>{tip}</title></circle>")
        at = base + 36 + 16 * line
        drawn.append(f'<line x1="{LEFT}" y1="{at - 4}" x2="{LEFT + 24}" y2="{at - 4}" stroke="{colour}" '
                     f'stroke-width="2"{dashes}/>')
        drawn.append(text(LEFT + 30, at, curve.name, 12))
    return drawn, 40 + HEIGHT + GAP + 16 * len(curves)


def number(value: float) -> str:
    """With three digits that count."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def text(x: float, y: float, words: str, size: int, bold: bool = False, anchor: str = "start") -> str:
    """Words whose baseline is at a place."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{TEXT}"{weight} text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def rectangle(x: float, y: float, width: float, height: float, fill: str, tip: str) -> str:
    """One bar, and what is shown where the mouse rests."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">'
        f"<title>{escape(tip)}</title></rect>"
    )
