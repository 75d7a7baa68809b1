"""Which measures a run has, one after the other."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .crew import BenchFailed, Crew, crew
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


class Planned(NamedTuple):
    """A measure of a course: which way, how, and to which table it belongs."""

    way: str
    staged: bool
    updates: int
    busy: float = 0.0
    part: str = "main"


class Course:
    """A run's measures; `found` is called with each, `say` with what comes next. A way that fails once is not
    measured again."""

    def __init__(self, settings: BenchSettings, say: Said, found: Found) -> None:
        self.settings, self.say, self.found = settings, say, found
        self.measures: list[dict[str, Any]] = []
        self.simulated: list[dict[str, Any]] = []
        #: Why a way was not measured: what it lacks here, or how it failed.
        self.missing: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self.rate: str | None = None

    def run(self) -> None:
        """All of them. Raises `BenchFailed` at the end if a way has failed."""
        settings = self.settings
        self._in_turn(self._main())
        for trainers in settings.senders:
            swept = (
                Planned(way, False, settings.sweep_updates, part="sweep")
                for way in settings.way_list
                if way in settings.sweep_list
            )
            self._in_turn(swept, trainers=trainers)
        if settings.small:
            small = (Planned(way, False, settings.updates, part="small") for way in settings.way_list)
            self._in_turn(small, **SMALL)
        if settings.foreseen and self.rate and settings.trainer == "ddp" and self.measures:
            self._simulate(self.rate)
        if self.failed:
            raise BenchFailed("\n".join(f"{way}: {why}" for way, why in self.failed.items()))

    def _main(self) -> Iterator[Planned]:
        for mode in self.settings.mode_list:
            for way in self.settings.way_list:
                yield Planned(way, mode == "staged", self.settings.updates)
        if busy := self._busy_seconds():
            for way in self.settings.way_list:
                yield Planned(way, False, self.settings.busy_updates, busy, "busy")

    def _in_turn(self, planned: Iterator[Planned], **changes: Any) -> None:
        """Measures one after the other; after one that failed, the others in new processes."""
        left = True
        while left:
            left = False
            with self._fleet(**changes) as running:
                self.rate = self.rate or running.where.rate
                for case in planned:
                    if not self._is_able(case.way, running):
                        continue
                    try:
                        self._measure(running, case)
                    except BenchFailed as error:
                        self.say(f"{case.way}: failed: {error}")
                        self.failed[case.way], left = str(error), True
                        break

    def _simulate(self, rate: str) -> None:
        """weightcast's pull with more trainers than there are processes here."""
        self.say(f"simulating {self.settings.forecast} trainers")
        model_bytes = self.measures[0]["model_bytes"]
        self.simulated = forecast(self.settings.foreseen, self.settings.rollouts, model_bytes, rate)

    def _fleet(self, **changes: Any) -> Any:
        changed = dataclasses.replace(self.settings, **changes)
        self.say(f"starting {changed.trainers} trainers and {changed.ends} ranks of rollouts")
        return crew(changed)

    def _is_able(self, way: str, running: Crew) -> bool:
        """Whether a way can run here, and has not failed; why not is told."""
        if way in self.failed:
            return False
        why = find(way).lacking(running.places[0])
        if why and way not in self.missing:
            self.say(f"{way}: not run: {why}")
            self.missing[way] = why
        return not why

    def _busy_seconds(self) -> float:
        """How long a straggler is busy: so many times what the first way, a broadcast, takes."""
        in_place = [each["seconds"] for each in self.measures if each["mode"] == "in-place"]
        return self.settings.busy * in_place[0] if in_place else 0.0

    def _measure(self, running: Crew, case: Planned) -> None:
        options = self._searched(running, case.way)
        how = "staged" if case.staged else "in place"
        self.say(f"{case.way}, {how}{f', one busy for {case.busy:.1f} s' * bool(case.busy)}")
        began = time.monotonic()
        came = measure(running, Case(case.way, case.staged, case.updates, case.busy, options))
        came |= {"part": case.part, "took_s": time.monotonic() - began}
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
