"""The line to one engine: brings the orders of a fleet's driver to its workers, again until they have
answered, and takes the steps that the engine takes as a whole.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from ... import _core
from .http import Gone, settle
from .orders import OF_THE_ENGINE, Json
from .times import EngineTimes

log = logging.getLogger("weightcast")

#: Seconds until an order that is under way is brought again, the first time and at most.
LOOKS = (0.002, 0.1)
#: The same at most, once a request has failed.
AGAIN = 1.0

#: A `DriverInput`.
Event = Json


class Client(Protocol):
    """An engine whose workers take orders."""

    def init_weight_transfer_engine(self, init_info: Json) -> None:
        """Has the engine join the job."""

    def workers(self) -> int:
        """How many workers the engine has."""

    def order(self, order: Json) -> list[Json | None]:
        """Brings an order to all workers: the answers of `Orders.order`, None of one that has not joined a
        job. Raises `Gone` if the engine is known to be dead."""

    def performed(self, attempt: Json, failure: str | None) -> list[Json]:
        """Tells all workers of a step of the engine: the answers of `Orders.performed`."""

    def pause(self, mode: str) -> None:
        """Stops generation."""

    def paused(self) -> bool:
        """Whether generation is stopped."""

    def resume(self) -> None:
        """Goes on generating."""

    def invalidate(self) -> None:
        """Drops what was computed with other weights."""

    def stamp(self, weight_version: str) -> None:
        """Stamps what the engine generates with a version."""

    def take(self, holder: str, seconds: float) -> None:
        """Keeps others from exchanging weights of the engine."""

    def give_back(self, holder: str) -> None:
        """The exchange is over."""


class EngineLine:
    """One engine, and the thread that talks to it."""

    def __init__(
        self,
        number: int,
        client: Client,
        tell: Callable[[Event], None],
        settings: Json,
        holder: str,
        pause: str,
        hold: float,
    ) -> None:
        """`tell` gets what the engine says; `hold` is the seconds for which others are kept from it."""
        self._number, self._client, self._tell, self._settings = number, client, tell, settings
        self._holder, self._pause, self._hold = holder, pause, hold
        self.name = str(getattr(client, "base_url", type(client).__name__))
        #: What went wrong last.
        self.error: str | None = None
        #: Seconds of the fetch in this update, once that has ended.
        self._fetch: float | None = None
        #: How many workers it had when it answered last, and as the driver knows.
        self._count = self._told = 1
        self._order: Json | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"weightcast-engine-{number}", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """What was found in earlier updates is of no interest any more."""
        self.error = self._fetch = None

    def times(self, outcome: Json) -> EngineTimes:
        """How long an update took that ended in this `UpdateOutcome`."""
        paused, total = outcome["paused"] / 1e9, outcome["total"] / 1e9
        return EngineTimes(self.name, self._fetch, paused, total)

    def count(self) -> None:
        """Asks how many workers the engine has."""
        try:
            self._count = self._client.workers()
        except Exception as error:
            self.error = str(error)

    def known(self) -> int:
        """How many workers the driver is told that the engine has: of an engine that does not answer, as it
        answered last. The driver finds out what it is."""
        self._told = self._count
        return self._told

    def bring(self, order: Json) -> None:
        """Brings this order until it is answered or abandoned; an earlier one is brought no more."""
        with self._changed:
            self._order = order
            self._changed.notify_all()

    def abandon(self, order: Json) -> None:
        """Stops bringing this order."""
        with self._changed:
            if self._order is not None and self._order["attempt"] == order["attempt"]:
                self._order = None
                self._changed.notify_all()

    def rest(self) -> None:
        """Stops bringing whatever is brought."""
        with self._changed:
            self._order = None
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread, once the request that is under way has been answered."""
        with self._changed:
            self._closed, self._order = True, None
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._order is not None)
                if self._closed:
                    return
                order = self._order
            if order is not None:
                self._bring(order)

    def _bring(self, order: Json) -> None:
        """Until it is answered, abandoned, or followed by another."""
        pause, most = getattr(self._client, "looks", LOOKS)
        began = time.monotonic()
        while self._is_current(order):
            try:
                answered = self._once(order)
            except Gone as error:
                self.error = str(error)
                self._done(order)
                self._say("Lost")
                return
            except Exception as error:
                if str(error) != self.error:
                    log.warning("%s: %s: %s", self.name, order["step"], error)
                self.error, answered, most = str(error), False, AGAIN
            if answered:
                if order["step"] == "Fetch":
                    self._fetch = time.monotonic() - began
                self._done(order)
                return
            with self._changed:
                self._changed.wait_for(lambda: not self._is_current(order), pause)
            pause = min(2 * pause, most)

    def _once(self, order: Json) -> bool:
        """Brings an order once; whether all workers have answered."""
        said = self._client.order(order)
        self._count = len(said)
        if self._count != self._told:
            raise _core.WeightcastError(
                f"it has {self._count} workers, and had {self._told} when the update began: send the "
                "version again"
            )
        if any(each is None for each in said):
            self._client.init_weight_transfer_engine(self._settings)
            return False
        replies: list[Json] = [each for each in said if each is not None]
        if order["step"] in OF_THE_ENGINE and all(each["perform"] == order["attempt"] for each in replies):
            replies = self._perform(order)
        return self._hand_over(order, replies)

    def _hand_over(self, order: Json, replies: list[Json]) -> bool:
        """Hands the workers' answers to this order to the driver; whether all have answered."""
        answered = 0
        for worker, reply in enumerate(replies):
            if reply["error"] is not None:
                self.error = reply["error"]
            own = [a for a in reply["answers"] if a["attempt"] == order["attempt"]]
            answered += bool(own)
            for answer in own:
                self._say({"Answered": {"worker": worker, **self._amended(answer)}})
        return answered == len(replies)

    def _amended(self, answer: Json) -> Json:
        """Workers do not know whether the engine as a whole stands still."""
        report = answer["answer"].get("Inspected") if isinstance(answer["answer"], dict) else None
        if report is not None and self._client.paused():
            report |= {"paused": True, "serving": False}
        return answer

    def _perform(self, order: Json) -> list[Json]:
        """Takes a step of the engine. Workers hear of `Resume` first: the engine may run them at once."""
        attempt, failure = order["attempt"], None
        try:
            if order["step"] == "Resume":
                replies = self._client.performed(attempt, None)
                if all(_done(attempt, reply) for reply in replies):
                    self._client.resume()
                    self._client.give_back(self._holder)
                return replies
            self._take(order)
        except Gone:
            raise
        except Exception as error:
            failure = f"{order['step']}: {str(error) or type(error).__name__}"
            self.error = failure
        if failure is not None and order["step"] == "Resume":
            # Its workers may serve, and the engine perhaps does not: the driver asks.
            failed = {"attempt": attempt, "answer": {"Failed": "Engine"}}
            return [{"answers": [failed], "perform": None, "error": failure}]
        return self._client.performed(attempt, failure)

    def _take(self, order: Json) -> None:
        step = order["step"]
        if step == "Pause":
            self._client.take(self._holder, self._hold)
            self._stop(order)
        elif step == "Invalidate" and not order["keep_caches"]:
            self._client.invalidate()
        elif step == "Stamp":
            self._client.stamp(str(order["version"]["number"]))

    def _stop(self, order: Json) -> None:
        """Pauses the engine. With `wait`, that takes as long as its requests do: nobody waits for them once
        the order is abandoned, since the engine is to go on then."""
        if self._pause != "wait":
            self._client.pause(self._pause)
            return
        paused: Future[None] = Future()
        threading.Thread(target=settle, args=(paused, self._client.pause, self._pause), daemon=True).start()
        paused.add_done_callback(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: paused.done() or not self._is_current(order))
        if not paused.done():
            raise _core.WeightcastError("requests that were under way have not ended in time")
        paused.result()

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _is_current(self, order: Json) -> bool:
        return self._order is order

    def _done(self, order: Json) -> None:
        with self._changed:
            if self._order is order:
                self._order = None

    def _say(self, happened: Any) -> None:
        self._tell({"Engine": {"engine": self._number, "input": happened}})


def _done(attempt: Json, reply: Json) -> bool:
    """Whether a worker says that it has taken a step."""
    return any(a["attempt"] == attempt and a["answer"] == "Done" for a in reply["answers"])
