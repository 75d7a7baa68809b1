"""Nodes that are taken away: what Ray knows of them before they go."""

import time

import ray

#: Seconds of a notice that are kept for what comes after leaving.
RESERVE = 2.0


def taken_away() -> dict[str, int]:
    """The ids of nodes that Ray drains, because a cloud takes them away or nobody needs them, each with the
    time (Unix, in milliseconds) at which it goes; 0 where nobody knows it."""
    nodes: dict[str, int] = ray._private.state.state.get_draining_nodes()
    return nodes


def left_by(deadline_ms: int, notice: float, now_ms: int | None = None) -> float:
    """The seconds in which a worker of such a node has to leave: those of a notice, if nobody knows more."""
    if deadline_ms == 0:
        return notice
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return max(0.0, min(notice, (deadline_ms - now) / 1000 - RESERVE))
