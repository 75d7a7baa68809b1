"""A worker of a live engine obeys the orders of a fleet's driver: `_core.EngineGate` decides which. The steps
are taken here; the engine's client is asked for those that workers cannot take
(docs/concepts/engine-updates.md).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Protocol

from ... import _core
from .routing import Notices
from .shard import EngineShard

log = logging.getLogger("weightcast")

#: A structure of the machines, as the Rust types are written by serde.
Json = dict[str, Any]

#: What an engine serves that has loaded its weights by itself.
LOADED = {"epoch": 0, "number": 0}
#: Steps that the engine takes as a whole: its client does, and says so with `performed`.
OF_THE_ENGINE = ("Pause", "Invalidate", "Stamp", "Resume")
#: Characters of an error that an answer has at most.
LONGEST = 2000
#: Seconds to ask the register which driver is the newest.
ASKING = 5.0


class Host(Protocol):
    """What the worker has around its shard."""

    def shard(self) -> EngineShard:
        """The worker's part in the job. Raises before the worker has joined one."""

    def before_fetch(self) -> None:
        """Raises if the engine cannot take a version now."""

    def before_install(self) -> None:
        """Raises if the engine cannot take a version now; waits for work that still reads the parameters."""

    def after_install(self) -> None:
        """What the engine needs once parameters have changed."""


class Orders:
    """One worker's gate, and the steps behind the gate. All workers of an engine get the same orders, one
    after another. No method raises: what fails is in the answer."""

    def __init__(self, host: Host, life: int) -> None:
        """`life` is drawn for the engine: the same at all of its workers."""
        self._host, self._life = host, life
        #: The running order whose fetch is under way, and the one that the engine takes as a whole.
        self._fetching: Json | None = None
        self._asked: Json | None = None
        #: Why the last step failed.
        self._error: str | None = None
        self._gate = self._new_gate()
        self._notices = _notices(host)
        self._notice()

    @property
    def life(self) -> int:
        """The engine's life."""
        return self._life

    def renew(self, life: int | None = None) -> None:
        """What the worker holds has changed without orders (an update by calls, a sleep): from now on orders
        for what it was have no effect, since the engine has another life (by default the next one). The
        engine serves if it holds whole weights. All workers call."""
        self._life = self._life + 1 if life is None else life
        self._fetching = self._asked = None
        self._gate = self._new_gate()
        self._notice()

    def _new_gate(self) -> _core.EngineGate:
        shard = self._host.shard()
        state = shard.state
        whole = state.incomplete is None
        holds = json.dumps(shard.version or LOADED) if whole else None
        return _core.EngineGate(self._life, holds, _newest_driver(shard), serving=whole)

    def order(self, order: Json) -> Json:
        """An order came in, perhaps again. `answers` to the driver, if there are any; `perform` is the
        attempt of the step that the client has to take; neither: the step is under way, ask again. `error`
        says why a step failed."""
        self._settle()
        self._gate.handle_order(json.dumps(order))
        return self._obeyed()

    def performed(self, attempt: Json, failure: str | None) -> Json:
        """The client has taken the step that it was asked for, or could not (`failure`: why)."""
        asked, self._asked = self._asked, None
        if asked is not None and asked["attempt"] == attempt:
            self._finish(asked, None if failure is None else _core.WeightcastError(failure))
        return self._obeyed()

    def may_serve(self) -> bool:
        """Whether the worker may run its model."""
        return self._gate.may_serve()

    def report(self) -> Json:
        """What the worker is: an `EngineReport`."""
        found: Json = json.loads(self._gate.report())
        return found

    def slept(self) -> None:
        """The worker's memory is about to go: until `renew`, orders are refused."""
        self._gate.handle_slept()
        self._notice()

    def close(self) -> None:
        """No orders come any more; routers are told that nothing is served."""
        self._notices.say(self._life, None)
        self._notices.close()

    def _notice(self) -> None:
        """Tells routers what the worker serves now."""
        serves = self.report()["ready"] if self.may_serve() else None
        self._notices.say(self._life, serves)

    def _obeyed(self) -> Json:
        said = self._obey()
        self._notice()
        return said

    def _obey(self) -> Json:
        """Takes the steps that the gate lets through; what there is to say then."""
        answers = []
        while (said := self._gate.poll_output()) is not None:
            output = json.loads(said)
            if "Perform" in output:
                self._take(output["Perform"])
            else:
                answers.append(output["Answer"])
        if self._asked is not None and not self._gate.may_act(json.dumps(self._asked["attempt"])):
            self._asked = None
        perform = None if self._asked is None else self._asked["attempt"]
        return {"answers": answers, "perform": perform, "error": self._error}

    def _take(self, order: Json) -> None:
        self._error = self._fetching = self._asked = None
        if order["step"] in OF_THE_ENGINE:
            self._asked = order
            return
        try:
            under_way = STEPS[order["step"]](self._host, order)
        except Exception as error:
            self._finish(order, error)
            return
        if under_way:
            self._fetching = order
        else:
            self._finish(order, None)

    def _settle(self) -> None:
        """Looks whether the fetch that is under way has ended."""
        order = self._fetching
        if order is None:
            return
        try:
            arrived = self._host.shard().arrived()
        except Exception as error:
            self._fetching = None
            self._finish(order, error)
            return
        if arrived:
            self._fetching = None
            self._finish(order, None)

    def _finish(self, order: Json, error: Exception | None) -> None:
        failure = None
        if error is not None:
            self._error = f"{order['step']}: {str(error) or type(error).__name__}"[:LONGEST]
            log.warning("%s", self._error, exc_info=error)
            failure = failure_of(error)
        self._gate.handle_performed(json.dumps(order["attempt"]), failure)


def failure_of(error: Exception) -> str:
    """The machines' name of an error."""
    kinds: list[tuple[tuple[type[Exception], ...], str]] = [
        ((_core.LayoutMismatch,), "layouts"),
        ((_core.DigestMismatch, _core.ContentMismatch), "digest"),
        ((_core.SourceLost, _core.VersionUnavailable, _core.Timeout, _core.ServerUnreachable), "source"),
    ]
    return next((name for kind, name in kinds if isinstance(error, kind)), "engine")


def _notices(host: Host) -> Notices:
    """By whichever handle the worker has: a worker whose group has ended joins again with another one."""
    shard = host.shard()
    replica = shard.replica

    def ask(question: str, deadline: float) -> str:
        return str(host.shard().handle._core.ask_routing(question, deadline))

    name = shard.settings.address or replica.name
    return Notices(ask, name, replica.shard, replica.num_shards)


def _newest_driver(shard: EngineShard) -> int:
    """The newest driver that the register has numbered: earlier ones have no say. 0 if it does not answer:
    then the next driver's question orders them."""
    try:
        answer = json.loads(shard.handle._core.ask_fleet(json.dumps("State"), ASKING))
    except _core.WeightcastError as error:
        log.warning("the register of the fleet does not answer: %s", error)
        return 0
    return int(answer["driver"])


def _negotiate(host: Host, order: Json) -> None:
    host.before_fetch()
    shard = host.shard()
    shard.begin()
    shard.read_layout(_seconds(order))


def _fetch(host: Host, order: Json) -> bool:
    """True: the bytes are on their way."""
    number, run = order["version"]["number"], order["version"]["epoch"]
    host.shard().fetch(
        number,
        wait=order["means"] != "Staged",
        deadline=_seconds(order),
        allow_rollback=True,
        run=run,
    )
    return True


def _begin(host: Host, order: Json) -> None:
    host.before_install()


def _install(host: Host, order: Json) -> None:
    host.shard().install()
    host.after_install()


def _post_process(host: Host, order: Json) -> None:
    """A staged install runs the engine's own loader, and what that does at its end."""
    if order["means"] == "InPlace":
        _install(host, order)


def _verify(host: Host, order: Json) -> None:
    """The bytes were compared with the version's digests when they arrived; the copy into the engine's own
    form has no digest."""
    shard = host.shard()
    shard.check_serving()
    held = shard.version or LOADED
    if held != order["version"]:
        raise _core.ContentMismatch(f"the parameters hold {held}, not {order['version']}")


def _discard(host: Host, order: Json) -> None:
    host.shard().give_up()


def _seconds(order: Json) -> float:
    return float(order["deadline"]) / 1e9


#: What a worker does in a step; true if the step goes on in the background.
STEPS: dict[str, Callable[[Host, Json], bool | None]] = {
    "Negotiate": _negotiate,
    "Fetch": _fetch,
    "Begin": _begin,
    "Install": _install,
    "PostProcess": _post_process,
    "Verify": _verify,
    "Discard": _discard,
}
