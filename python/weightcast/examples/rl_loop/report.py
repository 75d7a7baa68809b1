"""What is shown: a line per step, a table at the end, the same as JSON."""

import dataclasses
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from .settings import Settings

WINDOW = 10
"""Steps whose rewards are averaged for "first" and "last"."""
FLAT = 0.1
"""How far the control's reward may move and still be called flat."""
ROWS = 16
"""Versions the table shows; the JSON has all."""
STAMPS = "published", "unpublished", "asked", "committed"
"""Times in reports; kept as seconds since the run began."""


@dataclass
class Moved:
    """What all shards together took of one version; `seconds` is the slowest shard's time."""

    bytes: int = 0
    verified: int = 0
    seconds: float = 0.0
    shards: int = 0

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes a second, all shards together."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    def add(self, event: dict[str, Any]) -> None:
        """Counts one shard's update."""
        self.bytes += event["bytes"]
        self.verified += event["verified"]
        self.seconds = max(self.seconds, event["seconds"])
        self.shards += 1


@dataclass
class Report:
    """Collects the children's reports. Their times are of the host's one monotonic clock."""

    settings: Settings
    began: float = field(default_factory=time.monotonic)
    steps: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[int, Moved] = field(default_factory=lambda: defaultdict(Moved))
    holds: dict[str, int] = field(default_factory=dict)
    allocation: dict[str, dict[str, Any]] = field(default_factory=dict)
    sync_seconds: float = 0.0

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
                self.holds[name.split("/")[0]] = event["version"]
                self.sync_seconds = event["seconds"]
            case "step":
                self.steps.append(event)
                self._show_step(event)
            case "allocation":
                self.allocation[name] = event

    def _show_step(self, event: dict[str, Any]) -> None:
        holds = " ".join(f"{name}@{version}" for name, version in sorted(self.holds.items()))
        print(
            f"step {event['step']:4}  reward {event['reward']:.3f}  "
            f"staleness {event['staleness']:.1f}  sync {self.sync_seconds * 1e3:6.1f} ms  {holds}",
            flush=True,
        )

    @property
    def total(self) -> Moved:
        """All versions together; `seconds` is the sum over versions."""
        moved = self.versions.values()
        return Moved(
            bytes=sum(m.bytes for m in moved),
            verified=sum(m.verified for m in moved),
            seconds=sum(m.seconds for m in moved),
            shards=sum(m.shards for m in moved),
        )

    @property
    def rewards(self) -> tuple[float, float]:
        """Mean reward of the first and of the last steps."""
        rewards = [step["reward"] for step in self.steps]
        first, last = rewards[:WINDOW], rewards[-WINDOW:]
        return sum(first) / len(first), sum(last) / len(last)

    @property
    def seconds(self) -> float:
        """From the start until the last step or update."""
        steps: list[float] = [step["unpublished_s"] for step in self.steps]
        updates: list[float] = [update["committed_s"] for update in self.updates]
        return max([0.0, *steps, *updates])

    def failure(self) -> str | None:
        """Why the run doesn't show what it should; None if it does."""
        unverified = self.total.bytes - self.total.verified
        if unverified:
            return f"{unverified} bytes were not verified"
        rise = self.rewards[1] - self.rewards[0]
        wanted = self.settings.min_rise
        if self.settings.no_sync and abs(rise) > FLAT:
            return f"without sync the reward moved by {rise:+.3f}; it should stay flat"
        if not self.settings.no_sync and rise < wanted:
            return f"the reward rose by {rise:+.3f}, less than --min-rise {wanted}"
        return None

    def show(self, dropped: int) -> None:
        """Prints the table."""
        row = "{:>8}  {:>6}  {:>12}  {:>9}  {:>8}  {:>12}"
        print("\n" + row.format("version", "shards", "bytes", "seconds", "GB/s", "verified"))
        rows = [(str(v), m) for v, m in sorted(self.versions.items())]
        hidden = max(0, len(rows) - ROWS)
        for i, (name, m) in enumerate([*rows, ("total", self.total)]):
            if not ROWS // 2 <= i < ROWS // 2 + hidden:
                cells = f"{m.bytes:,}", f"{m.seconds:.4f}", f"{m.gb_per_s:.3f}", f"{m.verified:,}"
                print(row.format(name, m.shards, *cells))
            elif i == ROWS // 2:
                print(f"{'...':>8}  ({hidden} more; --json has all)")
        first, last = self.rewards
        print(f"\nreward: first {WINDOW} steps {first:.3f}, last {WINDOW} steps {last:.3f}")
        print(f"batches dropped as too old: {dropped}")
        for name, seen in sorted(self.allocation.items()):
            shard = "x".join(map(str, seen["largest_shard"]))
            count = f"{seen['tensors_seen']:,}"
            print(f"{name}: no full projection among {count} tensors; largest shard {shard}")
        print(f"{self.total.bytes - self.total.verified} unverified bytes")

    def as_json(self) -> dict[str, Any]:
        """The run, as one of the `runs` of a `demo/1` file."""
        versions = [
            {"version": v, **dataclasses.asdict(m), "gb_per_s": m.gb_per_s}
            for v, m in sorted(self.versions.items())
        ]
        settings = dataclasses.asdict(self.settings)
        del settings["json"]  # a path of this machine
        first, last = self.rewards
        return {
            "settings": settings,
            "seconds": self.seconds,
            "steps": self.steps,
            "updates": self.updates,
            "versions": versions,
            "total": dataclasses.asdict(self.total),
            "reward": {"first": first, "last": last},
            "allocation": self.allocation,
        }
