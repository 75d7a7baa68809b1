"""What became of a loop on Ray: of each step the reward and the staleness, and what happened between.

Needs no Ray itself. `write` makes a file of the kind `ray-loss/1`, which `weightcast plot` draws.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

SCHEMA = "ray-loss/1"
"""The kind of file, and the version of its schema."""


@dataclass(frozen=True)
class Step:
    """A training step."""

    step: int
    #: The trainer's newest version when it learnt.
    version: int
    #: Mean of the samples.
    reward: float
    #: Versions that the batches were behind: their mean, and the worst.
    staleness: float
    stalest: int
    #: Versions that the rollout furthest behind was behind, whether it gave samples or not.
    furthest: int
    #: Since the record began.
    ended_s: float


@dataclass(frozen=True)
class Event:
    """Something that happened before a step ended."""

    #: The step that was the next to end.
    step: int
    what: str
    detail: str
    at_s: float


def addresses() -> tuple[str, ...]:
    """Of the job's servers. One that has moved to another node has another address."""
    import weightcast.adapters.ray as wcr

    return wcr.servers().addresses


class Record:
    """Grows while a loop runs, and says aloud what comes in."""

    def __init__(
        self,
        rollouts: Iterable[Hashable],
        clock: Callable[[], float] = time.monotonic,
        servers: Callable[[], tuple[str, ...]] = addresses,
    ) -> None:
        self.steps: list[Step] = []
        self.events: list[Event] = []
        # The newest version that each rollout is known to have had; 0 before the first.
        self._had = dict.fromkeys(rollouts, 0)
        #: Whether all rollouts had the newest version at the last step.
        self.all_follow = True
        self._servers, self._listed = servers, servers()
        self._load = round(os.getloadavg()[0], 1)
        self._clock, self._began = clock, clock()

    def happened(self, what: str, detail: str = "") -> None:
        """Writes down an event."""
        self.events.append(Event(len(self.steps), what, detail, self._now()))
        print(f"{what}: {detail}" if detail else what, flush=True)

    def in_vain(self, why: str) -> None:
        """Writes down a step that came to nothing."""
        self.happened("step in vain", why)

    def learnt(self, reward: float, newest: int, versions: Sequence[int | None], updated: set[Any]) -> None:
        """Writes down a step: what the trainer's newest version was, those of the batches that it learnt
        from, and the rollouts that had the newest."""
        behind = [newest - (version or 0) for version in versions]
        self._had |= dict.fromkeys(updated, newest)
        furthest = newest - min(self._had.values())
        self._look_at(updated)
        self.look_at_servers()
        number = len(self.steps)
        self.steps.append(Step(number, newest, reward, mean(behind), max(behind), furthest, self._now()))
        print(f"step {number}: reward {reward:.2f}, {furthest} versions behind", flush=True)

    def _look_at(self, updated: set[Any]) -> None:
        before, self.all_follow = self.all_follow, updated >= self._had.keys()
        if self.all_follow != before:
            numbers = [str(number) for number, one in enumerate(self._had) if one not in updated]
            what = "rollouts follow again" if self.all_follow else "rollouts behind"
            self.happened(what, ", ".join(numbers))

    def look_at_servers(self) -> None:
        """Writes down whether one has moved since the last look."""
        before, self._listed = self._listed, self._servers()
        if self._listed != before:
            self.happened("server moved")

    def _now(self) -> float:
        return round(self._clock() - self._began, 3)

    def as_json(self, **settings: Any) -> dict[str, Any]:
        """All of it, its sums, and how many processes the machine had to run when it began."""
        steps, events = [asdict(step) for step in self.steps], [asdict(event) for event in self.events]
        found = {"steps": steps, "events": events, "sums": sums(self.steps, self.events)}
        return {**settings, "load": self._load, **found}


def sums(steps: Sequence[Step], events: Sequence[Event]) -> dict[str, Any]:
    """What a run comes to. Of one that lost a node also, counted from the moment before the loss: when the
    next step ended, when all rollouts followed again, and when the server had moved; None if it never did."""
    ends = [0.0, *(step.ended_s for step in steps)]
    # The first step waits for all actors' start.
    lasted = [after - before for before, after in zip(ends[1:], ends[2:], strict=False)] or ends[1:]
    rewards = [step.reward for step in steps]
    found: dict[str, Any] = {
        "steps": len(steps),
        "in_vain": sum(event.what == "step in vain" for event in events),
        "without_all": sum(step.furthest > 0 for step in steps),
        "stalest": max(step.stalest for step in steps),
        "furthest": max(step.furthest for step in steps),
        "median_step_s": round(median(lasted), 3),
        "longest_step_s": round(max(lasted), 3),
        "reward": {"first": mean(rewards[:3]), "last": mean(rewards[-3:])},
    }
    lost = next((event for event in events if event.what == "node lost"), None)
    if lost is not None:
        since = events[events.index(lost) :]
        found["after_loss_s"] = {
            "next_step": _after(lost, (step.ended_s for step in steps if step.step >= lost.step)),
            "rollouts_follow": _after(lost, (e.at_s for e in since if e.what == "rollouts follow again")),
            "server_moved": _after(lost, (e.at_s for e in since if e.what == "server moved")),
        }
    return found


def _after(lost: Event, times_s: Iterable[float]) -> float | None:
    """From the loss to the first of some times, if there is one."""
    first = next(iter(times_s), None)
    return None if first is None else round(first - lost.at_s, 3)


def machine() -> dict[str, Any]:
    """What it runs on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
    }


def write(path: str, runs: Sequence[dict[str, Any]]) -> None:
    """Writes runs as a file."""
    text = json.dumps({"weightcast": SCHEMA, "machine": machine(), "runs": runs}, separators=(",", ":"))
    Path(path).write_text(text + "\n", encoding="utf-8")
