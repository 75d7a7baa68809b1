"""What is shown and written of a run: a line per step, a table at the end, the same as JSON.

The file is one of the kind `demo/1`, so that `weightcast plot` draws it; what `demo/1` does not have
stands beside it, in fields that a picture passes over.
"""

import dataclasses
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from ..rl_loop.backlog import Backlog
from ..rl_loop.report import STAMPS, WINDOW, Moved
from .settings import LoopSettings


@dataclass
class Account:
    """Collects the children's reports. Their times are of the host's one monotonic clock."""

    settings: LoopSettings
    began: float = field(default_factory=time.monotonic)
    steps: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[int, Moved] = field(default_factory=lambda: defaultdict(Moved))
    staleness: Counter[str] = field(default_factory=Counter)
    holds: dict[str, int] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    stalls: list[float] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    trainer_stall: float = 0.0

    def on_report(self, name: str, event: dict[str, Any]) -> None:
        """One report of child `name`."""
        kind = event.pop("event")
        for stamp in STAMPS:
            if stamp in event:
                event[f"{stamp}_s"] = round(event.pop(stamp) - self.began, 6)
        match kind:
            case "update":
                told = {key: event[key] for key in ("version", "asked_s", "committed_s")}
                self.updates.append({"worker": name} | told)
                self.versions[event["version"]].add(event)
                if name in self.joined:
                    self.stalls.append(told["committed_s"] - told["asked_s"])
                self.joined.add(name)
                self.holds[name.split("/")[0]] = event["version"]
            case "step":
                self.staleness.update(event.pop("samples_of"))
                self.steps.append(event)
                self._show_step(event)
            case "stalled":
                self.trainer_stall = max(self.trainer_stall, event["seconds"])

    def on_loss(self, name: str, why: str) -> None:
        """A rollout died."""
        self.lost.append({"rollout": name, "at_s": round(time.monotonic() - self.began, 3), "why": why})
        self.holds.pop(name, None)
        self.joined = {each for each in self.joined if each.split("/")[0] != name}
        print(f"lost: {why.splitlines()[0]}", flush=True)

    def _show_step(self, event: dict[str, Any]) -> None:
        holds = " ".join(f"{name}@{version}" for name, version in sorted(self.holds.items()))
        print(
            f"step {event['step']:4}  reward {event['reward']:.3f}  "
            f"staleness {event['staleness']:.1f}  waited {event['waited']:.2f} s  {holds}",
            flush=True,
        )

    @property
    def total(self) -> Moved:
        """All versions together; `seconds` is the sum over versions."""
        moved = self.versions.values()
        names = [f.name for f in dataclasses.fields(Moved)]
        return Moved(**{name: sum(getattr(m, name) for m in moved) for name in names})

    @property
    def rewards(self) -> tuple[float, float]:
        """Mean reward of the first and of the last steps."""
        rewards = [step["reward"] for step in self.steps]
        first, last = rewards[:WINDOW], rewards[-WINDOW:]
        return sum(first) / len(first), sum(last) / len(last)

    @property
    def rollout_stall(self) -> float:
        """Seconds that all shards of the rollouts stood still for versions, together: without the first of
        each life, for which a rollout may have waited until there was one."""
        return sum(self.stalls)

    def failure(self) -> str | None:
        """Why the run doesn't show what it should; None if it does."""
        if unverified := self.total.bytes - self.total.verified:
            return f"{unverified} bytes were not verified"
        rise = self.rewards[1] - self.rewards[0]
        if rise < self.settings.min_rise:
            return f"the reward rose by {rise:+.3f}, less than --min-rise {self.settings.min_rise}"
        return None

    def summary(self, backlog: Backlog) -> dict[str, Any]:
        """What `demo/1` does not have."""
        first, last = self.rewards
        total = self.total
        return {
            "reward": {"first": first, "last": last},
            "staleness": {int(behind): count for behind, count in sorted(self.staleness.items())},
            "samples": {
                "learnt": sum(self.staleness.values()),
                "dropped": backlog.dropped_samples,
                "foreign": backlog.foreign_samples,
            },
            "digests": backlog.published,
            "stall": {"rollouts_s": round(self.rollout_stall, 6), "trainers_s": round(self.trainer_stall, 6)},
            "waited_s": round(sum(step["waited"] for step in self.steps), 6),
            "gb_per_s": total.gb_per_s,
            "lost": self.lost,
        }

    def show(self, backlog: Backlog) -> None:
        """Prints the table."""
        found, total = self.summary(backlog), self.total
        first, last = self.rewards
        behind = ", ".join(f"{k} behind: {v:,}" for k, v in found["staleness"].items())
        counted = found["samples"]
        rows = {
            "reward": f"first {WINDOW} steps {first:.3f}, last {WINDOW} steps {last:.3f}",
            "samples": f"{counted['learnt']:,} learnt ({behind}); {counted['dropped']:,} dropped as too old, "
            f"{counted['foreign']:,} of unknown weights",
            "versions": f"{len(self.steps)} published, {len(self.versions)} taken, "
            f"{total.shards} updates of shards",
            "bytes": f"{total.bytes:,} at {total.gb_per_s:.3f} GB/s, "
            f"{total.bytes - total.verified} unverified",
            "stall": f"rollouts {self.rollout_stall:.2f} s, trainers {self.trainer_stall:.2f} s; "
            f"trainers waited {found['waited_s']:.2f} s for samples",
            "lost": f"{len(self.lost)} rollouts",
        }
        print()
        for name, text in rows.items():
            print(f"{name:>9}  {text}")

    def as_json(self, backlog: Backlog) -> dict[str, Any]:
        """The run, as one of the `runs` of a `demo/1` file."""
        settings = dataclasses.asdict(self.settings)
        del settings["json"]  # a path of this machine
        sizes = [str(settings["rollout_tp"])] * settings["rollouts"]
        versions = [
            {"version": v, **dataclasses.asdict(m), "gb_per_s": m.gb_per_s}
            for v, m in sorted(self.versions.items())
        ]
        ends = [step["unpublished_s"] for step in self.steps]
        ends += [update["committed_s"] for update in self.updates]
        return {
            "settings": settings | {"rollouts": ",".join(sizes), "no_sync": False},
            "seconds": max([0.0, *ends]),
            "steps": self.steps,
            "updates": self.updates,
            "versions": versions,
            "total": dataclasses.asdict(self.total),
            **self.summary(backlog),
        }
