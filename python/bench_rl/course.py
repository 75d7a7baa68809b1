"""Which measures a run has, one after the other."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from .crew import Crew, crew
from .forecast import forecast
from .measure import Case, measure
from .settings import BenchSettings
from .ways import find

TRY_UPDATES = 2
"""Updates of each try of a search; the first does not count."""
SMALL: dict[str, Any] = {
    "trainers": 1, "rollouts": 2, "rollout_tp": 1, "layers": 2, "hidden": 64, "vocab": 512,
    "links": "loopback", "per_host": 1,
}
"""A model so small that what is between the bytes is all there is."""
Said = Callable[[str], None]
Found = Callable[[dict[str, Any]], None]


class Course:
    """A run's measures; `found` is called with each, `say` with what comes next."""

    def __init__(self, settings: BenchSettings, say: Said, found: Found) -> None:
        self.settings, self.say, self.found = settings, say, found
        self.measures: list[dict[str, Any]] = []
        self.simulated: list[dict[str, Any]] = []
        self.missing: dict[str, str] = {}
        self.options: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        """All of them."""
        with self._fleet() as running:
            ways, rate = self._able(running), running.where.rate
            for mode in self.settings.mode_list:
                for way in ways:
                    self._measure(running, way, mode == "staged", self.settings.updates)
            if busy := self._busy_seconds():
                for way in ways:
                    self._measure(running, way, False, self.settings.busy_updates, busy)
        for trainers in self.settings.senders:
            with self._fleet(trainers=trainers) as running:
                for way in self._able(running):
                    if way in self.settings.sweep_list:
                        self._measure(running, way, False, self.settings.sweep_updates, part="sweep")
        if self.settings.small:
            with self._fleet(**SMALL) as running:
                for way in self._able(running):
                    self._measure(running, way, False, self.settings.updates, part="small")
        if self.settings.foreseen and rate and self.settings.trainer == "ddp":
            self._simulate(rate)

    def _simulate(self, rate: str) -> None:
        """weightcast's pull with more trainers than there are processes here."""
        self.say(f"simulating {self.settings.forecast} trainers")
        model_bytes = self.measures[0]["model_bytes"]
        self.simulated = forecast(self.settings.foreseen, self.settings.rollouts, model_bytes, rate)

    def _fleet(self, **changes: Any) -> Any:
        changed = dataclasses.replace(self.settings, **changes)
        self.say(f"starting {changed.trainers} trainers and {changed.ends} ranks of rollouts")
        return crew(changed)

    def _able(self, running: Crew) -> list[str]:
        """The ways that can run here; why the others cannot is told."""
        able = []
        for way in self.settings.way_list:
            if why := find(way).lacking(running.places[0]):
                if way not in self.missing:
                    self.say(f"{way}: not run: {why}")
                self.missing[way] = why
            else:
                able.append(way)
        return able

    def _busy_seconds(self) -> float:
        """How long a straggler is busy: so many times what the first way, a broadcast, takes."""
        in_place = [each["seconds"] for each in self.measures if each["mode"] == "in-place"]
        return self.settings.busy * in_place[0] if in_place else 0.0

    def _measure(
        self, running: Crew, way: str, staged: bool, updates: int, busy: float = 0.0, part: str = "main"
    ) -> None:
        options = self._searched(running, way)
        self.say(f"{way}, {'staged' if staged else 'in place'}{f', one busy for {busy:.1f} s' * bool(busy)}")
        began = time.monotonic()
        came = measure(running, Case(way, staged, updates, busy, options))
        came |= {"part": "busy" if busy else part, "took_s": time.monotonic() - began}
        self.measures.append(came)
        self.found(came)

    def _searched(self, running: Crew, way: str) -> dict[str, Any]:
        """The options of a way that did best when it was measured first."""
        if way not in self.options:
            best: tuple[float, dict[str, Any]] | None = None
            tried = find(way).choices(running.places[0]) if self.settings.search else []
            for options in tried:
                self.say(f"{way}: trying {options}")
                came = measure(running, Case(way, False, TRY_UPDATES, 0.0, options))["rollout_stall_s"]
                best = (came, options) if best is None or came < best[0] else best
            self.options[way] = best[1] if best else {}
        return self.options[way]
