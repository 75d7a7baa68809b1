"""What a worker of a live engine serves, said to the reference server again and again: so a router knows to
which engines it may send requests (`weightcast.engines`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from ... import _core

log = logging.getLogger("weightcast")

#: Seconds between two notices until the server has said how long one counts.
SOON = 1.0
#: How many notices a lease has.
OFTEN = 3

#: Tells the table of routing leases: a `RoutingQuestion` as JSON, and a deadline in seconds.
Ask = Callable[[str, float], str]


class Notices:
    """One worker's notices, and the thread that sends them: at once when something changes, and again within
    the lease."""

    def __init__(self, ask: Ask, engine: str, worker: int, workers: int) -> None:
        """`engine` is what routers know the engine by; `worker` is one of `workers`, from 0."""
        self._ask, self._engine, self._worker, self._workers = ask, engine, worker, workers
        self._changed = threading.Condition()
        #: The engine's life and what the worker serves now; None before anything was said.
        self._now: tuple[int, dict[str, int] | None] | None = None
        self._count, self._sent = 0, False
        self._closed = False
        self._refused: str | None = None
        self._thread = threading.Thread(target=self._run, name="weightcast-notices", daemon=True)
        self._thread.start()

    def say(self, life: int, serves: dict[str, int] | None) -> None:
        """The worker serves this version (`epoch`, `number`) from now on, or nothing."""
        with self._changed:
            if self._now != (life, serves):
                self._now, self._sent = (life, serves), False
                self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread, once what was said last has been sent; waits a moment for that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(2 * SOON)

    def _run(self) -> None:
        pause = SOON
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._is_due(), pause)
                if self._closed and not self._is_due():
                    return
                said, self._sent = self._now, True
            if said is not None:
                lease = self._send(*said)
                pause = SOON if lease is None else lease / OFTEN

    def _is_due(self) -> bool:
        return self._now is not None and not self._sent

    def _send(self, life: int, serves: dict[str, int] | None) -> float | None:
        """The seconds for which the notice counts; None if the server has not taken it."""
        self._count += 1
        notice: dict[str, Any] = {
            "engine": self._engine,
            "life": life,
            "worker": self._worker,
            "workers": self._workers,
            "count": self._count,
            "serves": serves,
        }
        try:
            answer = json.loads(self._ask(json.dumps({"Serves": notice}), SOON))
        except _core.WeightcastError as error:
            if str(error) != self._refused:
                log.warning("routers are not told what %s serves: %s", self._engine, error)
            self._refused = str(error)
            return None
        self._refused = None
        return float(answer["lease"]) / 1e9
