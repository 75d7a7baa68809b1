"""How long an engine's update took: what was done while the engine generated, and how long it stood still."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineTimes:
    """Seconds of one engine's update, on the trainer's clock."""

    #: The engine's address.
    engine: str
    #: Until its workers had fetched the version and verified the bytes, or one of them had failed; None where
    #: nothing was fetched. The engine generated meanwhile, unless the bytes landed in place.
    fetch_s: float | None
    #: From pause to resume; of an engine that still stands still, so far; 0 where it was not paused.
    paused_s: float
    #: All of the update, the waits for other engines included.
    total_s: float

    def __str__(self) -> str:
        fetch = "nothing fetched" if self.fetch_s is None else f"fetched in {self.fetch_s:.3f} s"
        return f"{self.engine}: {fetch}, paused for {self.paused_s:.3f} s, {self.total_s:.3f} s in all"


class Stopwatch:
    """Notes the times of one engine that is updated by plain calls."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self.begin()

    def begin(self) -> None:
        """An update begins."""
        self._began = self._last = time.monotonic()
        self._fetch: float | None = None
        self._paused_at: float | None = None
        self._paused = 0.0

    def fetched(self, began: float) -> None:
        """A fetch that began at that time has ended."""
        self._last = time.monotonic()
        self._fetch = self._last - began

    def pausing(self) -> None:
        """The engine is told to stand still."""
        self._paused_at = time.monotonic()

    def resumed(self) -> None:
        """The engine goes on."""
        self._last = time.monotonic()
        if self._paused_at is not None:
            self._paused, self._paused_at = self._last - self._paused_at, None

    def ended(self) -> None:
        """The update is given up."""
        self._last = time.monotonic()

    def times(self) -> EngineTimes:
        """What was noted."""
        if self._paused_at is None:
            return EngineTimes(self._engine, self._fetch, self._paused, self._last - self._began)
        now = time.monotonic()
        return EngineTimes(self._engine, self._fetch, now - self._paused_at, now - self._began)
