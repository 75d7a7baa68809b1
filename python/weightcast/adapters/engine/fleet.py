"""The engines of a trainer as one fleet: all of them come to a version, or none does, also when the trainer
or the server is lost in between. `_core.FleetDriver` decides. Here its orders are brought to engines, and its
questions to the register of the reference server (docs/concepts/engine-updates.md).
"""

from __future__ import annotations

import json
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ... import _core
from .line import Client, EngineLine, Event
from .orders import Json
from .times import EngineTimes

log = logging.getLogger("weightcast")

#: Seconds that one question to the register may take before the driver asks again.
ASKING = 5.0
#: Seconds until the driver asks the register again.
ASK_EVERY = 0.5
#: How often a failed install is repeated from the bytes beside the parameters.
RETRIES = 1
#: In times of a step's deadline: how long others are kept from an engine that stands still, and when the work
#: on a version is given up.
HOLD, PATIENCE = 12, 48
#: The machines' names of the engines' modes: vLLM's three, and SGLang's `in_place`, in which requests go on
#: with the caches that they have. Another mode (`retract`) counts as `Abort`: caches are dropped.
MODES: dict[str, Any] = {
    "abort": "Abort",
    "wait": "Wait",
    "keep": {"Keep": {"mixed": False}},
    "in_place": {"Keep": {"mixed": True}},
}

#: Asks the register: a `FleetQuestion` as JSON, and a deadline in seconds.
Ask = Callable[[str, float], str]


@dataclass
class FleetReport:
    """What became of the engines of a fleet."""

    #: `Committed`, `Aborted` or `InDoubt`; None where no update of all engines was begun.
    end: str | None = None
    #: By number of the engine: its `UpdateOutcome`.
    engines: dict[int, Json] = field(default_factory=dict)
    #: Engines that were found dead.
    dead: set[int] = field(default_factory=set)
    #: Whether no engine was awake.
    asleep: bool = False

    def failed(self) -> list[int]:
        """The engines that do not serve the new version, but for those that only followed the others back."""
        return [n for n, outcome in self.engines.items() if not _is_new(outcome) and not _is_aborted(outcome)]


class Fleet:
    """Engines that orders can be brought to, and the driver of them that lives in this process."""

    def __init__(
        self, clients: Iterable[Client], ask: Ask, settings: Json, *, holder: str, pause: str, deadline: float
    ) -> None:
        """`settings` are what engines join with; `holder` is who exchanges weights; `pause` is one of the
        engines' modes; `deadline` is the seconds of each step."""
        self._ask, self._deadline = ask, deadline
        self._config = _config(pause, deadline)
        self._events: queue.SimpleQueue[Event | Json] = queue.SimpleQueue()
        self._lines = {
            n: EngineLine(n, client, self._events.put, settings, holder, pause, HOLD * deadline)
            for n, client in enumerate(clients)
        }
        self._driver = self._new_driver()
        #: Engines that were found dead in the last update.
        self.dead: set[int] = set()
        #: How long each engine took that took part in the last update.
        self.times: list[EngineTimes] = []

    def _new_driver(self) -> _core.FleetDriver:
        return _core.FleetDriver(json.dumps(self._config | {"key": secrets.randbits(63)}))

    def update(self, version: Json) -> None:
        """Brings all engines to a version. Raises `WeightcastError` if they serve what they served before, or
        if one of them has not come along: the others serve the new version then, and that one nothing. An
        engine that was dead before is no error: it was one when it died."""
        known, report = self.dead, self.bring(version)
        failed = sorted({*report.failed(), *(report.dead - known)})
        if report.end is not None or report.asleep:
            # Whoever is awake is in the report, unless the fleet had the version already.
            failed += sorted(set(self._lines) - set(report.engines) - report.dead)
        if report.end == "Aborted":
            raise _core.WeightcastError(
                f"version {version['number']} was given up, and engines go on with what they served: "
                f"{self.errors(report, failed or report.engines)}"
            )
        if failed:
            raise _core.WeightcastError(
                f"version {version['number']} was not installed by {len(failed)} of {len(self._lines)} "
                "engines, which are dead or asleep, or stay paused until an update succeeds: "
                f"{self.errors(report, failed)}"
            )
        if report.dead:
            log.warning("dead, and left out of version %d: %s", version["number"], self.names(report.dead))

    def bring(self, version: Json | None) -> FleetReport:
        """Brings all engines to a version (`epoch`, `number`), or none; without a version, ends what a lost
        driver has left, and brings engines that are late to the version of the fleet. Raises
        `WeightcastError` if nothing could be begun, or nobody knows how it ended."""
        self.times = []  # of this update, however it ends
        if not self._driver.is_idle():
            # A call was interrupted: a new driver ends what the former one has begun.
            self._driver = self._new_driver()
        for line in self._lines.values():
            line.begin()
        workers = self._workers()
        while not self._events.empty():
            self._events.get()  # of an earlier update
        report = FleetReport()
        started = time.monotonic()
        self._driver.bring(_now(), None if version is None else json.dumps(version), workers)
        try:
            while (end := self._do_all(version, report)) is None:
                self._wait(report)
                if time.monotonic() - started > PATIENCE * self._deadline:
                    self._driver.handle(_now(), json.dumps("Cancel"))
        finally:
            for line in self._lines.values():
                line.rest()
            self.times = [self._lines[n].times(outcome) for n, outcome in sorted(report.engines.items())]
        self.dead, report.asleep = report.dead, end == "NobodyAwake"
        self._check(end, report)
        if len(report.dead) == len(self._lines):
            raise _core.WeightcastError(f"all engines are dead: {self.errors(report, report.dead)}")
        return report

    def errors(self, report: FleetReport, engines: Iterable[int]) -> str:
        """What went wrong, by engine."""
        lines = [(self._lines[n], report.engines.get(n)) for n in engines]
        return "; ".join(f"{line.name}: {line.error or _reason(outcome)}" for line, outcome in lines)

    def names(self, engines: Iterable[int]) -> str:
        """The engines' addresses."""
        return ", ".join(self._lines[n].name for n in sorted(engines))

    def close(self) -> None:
        """Ends the threads."""
        for line in self._lines.values():
            line.close()

    def _workers(self) -> dict[int, int]:
        """How many workers each engine has. One that hangs is waited for no longer than in any other step."""
        end = time.monotonic() + self._deadline
        # Daemons: a program can end while an engine hangs.
        asking = [threading.Thread(target=line.count, daemon=True) for line in self._lines.values()]
        for each in asking:
            each.start()
        for each in asking:
            each.join(max(0.0, end - time.monotonic()))
        return {n: line.known() for n, line in self._lines.items()}

    def _do_all(self, version: Json | None, report: FleetReport) -> Any:
        """Does what the driver wants; how its work ended, once it has."""
        while (said := self._driver.poll_output()) is not None:
            output = json.loads(said)
            if output == "Ended" or "Ended" in output:
                return output["Ended"]
            ((what, told),) = output.items()
            if what == "Run":
                self._lines[told["engine"]].bring(told["order"])
            elif what == "Abandon":
                self._lines[told["engine"]].abandon(told["order"])
            elif what == "Ask":
                threading.Thread(target=self._ask_register, args=(told,), daemon=True).start()
            elif what == "Fleet":
                if told["version"] == version:
                    report.end = told["result"]["end"]
                    report.engines |= {int(n): o for n, o in told["result"]["engines"].items()}
                log.info("update of the fleet to %s: %s", told["version"], told["result"]["end"])
            elif what == "Apart":
                report.engines[told["engine"]] = told["outcome"]
        return None

    def _wait(self, report: FleetReport) -> None:
        """Waits for what happens next, and hands it to the driver."""
        due = self._driver.next_timeout()
        seconds = None if due is None else max(0.0, (due - _now()) / 1e9)
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            self._driver.handle_timeout(_now())
            return
        if event.get("Engine", {}).get("input") == "Lost":
            report.dead.add(event["Engine"]["engine"])
        self._driver.handle(_now(), json.dumps(event))

    def _ask_register(self, question: Any) -> None:
        try:
            answer = json.loads(self._ask(json.dumps(question), ASKING))
        except _core.WeightcastError as error:
            log.info("the register of the fleet does not answer: %s", error)
            return
        self._events.put({"Register": {"asked": question, "answer": answer}})

    def _check(self, end: Any, report: FleetReport) -> None:
        """Raises unless the driver could do its work."""
        if end in ("Done", "NobodyAwake"):
            return
        if end == "Superseded":
            raise _core.WeightcastError(
                "another trainer drives these engines now; stop that one, or start this one anew"
            )
        if end == "RegisterAway":
            raise _core.WeightcastError(
                "the reference server does not answer, so nobody knows which version counts: engines that "
                "stand still go on with the next update that reaches it"
            )
        if end == "Cancelled":
            raise _core.WeightcastError("the update took too long, and was given up before anything changed")
        silent = end["OutOfReach"]["engines"]
        raise _core.WeightcastError(
            f"nothing was begun, since {self.names(silent)} may serve and does not answer; restart or remove "
            f"the engine: {self.errors(report, silent)}"
        )


def _reason(outcome: Json | None) -> str:
    """At which step, and why, the update of an engine left its course."""
    if outcome is None:
        return "it sleeps; wake it up, and send the version again"
    if outcome["failure"] is None:
        return "no error is known"
    step, why = outcome["failure"]
    return f"{step}: {next(iter(why.values())) if isinstance(why, dict) else why}"


def _is_new(outcome: Json) -> bool:
    return bool(outcome["serving"]) and "New" in outcome["state"]


def _is_aborted(outcome: Json) -> bool:
    failure = outcome["failure"]
    return failure is not None and failure[1] == "Aborted" and outcome["serving"]


def _config(pause: str, deadline: float) -> Json:
    """A `DriverConfig` without its key."""
    span = int(deadline * 1e9)
    return {
        "fleet": True,
        "means": "Staged",
        "mode": MODES.get(pause, "Abort"),
        "prefetch": True,
        "deadlines": dict.fromkeys(("bytes", "pause", "parameters", "word"), span),
        "retries": RETRIES,
        "prepare": 2 * span,
        "decide": span,
        "reach": span,
        "ask_every": int(ASK_EVERY * 1e9),
        "safeguards": 0,
    }


def _now() -> int:
    return time.monotonic_ns()
