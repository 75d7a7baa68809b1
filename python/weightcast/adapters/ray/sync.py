"""A manager that has trainers publish and rollouts update, from the driver."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from ... import _core
from ...condition import available
from ...selector import at_least
from .notices import left_by, taken_away
from .weights import DEADLINE, NOTICE, held
from .where import where

log = logging.getLogger("weightcast")

#: Seconds in which a rollout that has come since the last version shows that it is there.
PROBE = 1.0


@dataclass(frozen=True)
class Sent:
    """What became of a version."""

    #: The version.
    version: int
    #: The rollouts that hold it, or a newer one.
    updated: tuple[Any, ...]
    #: Those that do not, each with the reason.
    missed: dict[Any, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether all rollouts have it."""
        return not self.missed


class WeightSync:
    """Has trainer actors publish version after version, and rollout actors update to each.

    Actors have called `trainer` or `rollout` in their `__init__`. Numbers of versions only grow, also where a
    version fails. A rollout that is lost, fails or is late stops no other: it is told of, and asked again
    with the next version, as is one that Ray has started again in its place."""

    def __init__(
        self,
        trainers: Sequence[Any],
        rollouts: Iterable[Any] = (),
        *,
        model: str = "policy",
        keep: bool = False,
        staged: bool = False,
        deadline: float = DEADLINE,
    ) -> None:
        """`trainers` are all shards and copies of what is trained. With `keep`, a version stays published
        until the next one: for layouts beside the module, and for trainers that call `Weights.take_back`
        themselves. Otherwise weights may be changed when `send` returns. With `staged`, rollouts hold the
        former version until the new one is there, as `Handle.update` says: where the trainer is lost
        meanwhile, there is a version to resume from. `deadline` is for each of its two steps, in seconds."""
        if not trainers:
            raise _core.Misuse("a model without a trainer has no versions: give all trainer actors")
        self.trainers = tuple(trainers)
        #: The rollouts to update. May be changed between two versions.
        self.rollouts = list(rollouts)
        self.model = model
        #: The version that was sent last; 0 before the first.
        self.version = 0
        self._keep, self._staged, self._deadline = keep, staged, deadline
        # Rollouts that have not answered yet.
        self._busy: dict[Any, Any] = {}
        # The node of each that has answered, and those that have been told to leave it.
        self._nodes: dict[Any, str] = {}
        self._told: dict[Any, Any] = {}

    def send(self, version: int | None = None) -> Sent:
        """Has all trainers publish `version` (by default the next number), and all rollouts update.

        Raises what a trainer raises; rollouts that fail are in the answer."""
        if self.version == 0:
            # Trainers that open after one has published would begin another run.
            joined = [actor.__ray_call__.remote(_joined, self.model, "trainer") for actor in self.trainers]
            ray.get(joined, timeout=self._deadline)
        self.wait_for_new(self._deadline if self.version == 0 else PROBE)
        number = self._next(version)
        self._publish(number)
        try:
            sent = self._update(number)
        except BaseException:
            self._give_up()
            raise
        if not self._keep:
            self._take_back()
        return sent

    def wait_for_new(self, patience: float) -> None:
        """Waits until rollouts that are new have joined, so many seconds at most. `send` does so at the first
        version; later it goes on without one whose node has still to come, say."""
        new = [actor for actor in self.rollouts if actor not in self._nodes and actor not in self._busy]
        asked = {actor: actor.__ray_call__.remote(_joined, self.model, "rollout") for actor in new}
        self._busy |= asked
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=patience)

    def _next(self, version: int | None) -> int:
        number = self.version + 1 if version is None else version
        if number <= self.version:
            raise _core.Misuse(f"version {number} does not come after {self.version}, which was sent before")
        self.version = number
        return number

    def _publish(self, version: int) -> None:
        asked = [
            actor.__ray_call__.remote(_publish, self.model, version, self._deadline)
            for actor in self.trainers
        ]
        try:
            ray.get(asked, timeout=self._deadline)
        except BaseException:
            self._give_up()
            raise

    def _take_back(self) -> None:
        """Raises what a trainer raises: that nobody could read the version, say."""
        ray.get(self._taking_back(), timeout=self._deadline)

    def _give_up(self) -> None:
        """The same where another error is under way, which says more."""
        asked = self._taking_back()
        ray.wait(asked, num_returns=len(asked), timeout=self._deadline)

    def _taking_back(self) -> list[Any]:
        return [actor.__ray_call__.remote(_take_back, self.model, self._deadline) for actor in self.trainers]

    def _update(self, version: int) -> Sent:
        missed: dict[Any, str] = {}
        asked: dict[Any, Any] = {}
        going = taken_away()
        for actor in self.rollouts:
            if (node := self._nodes.get(actor)) in going:
                self._tell_to_leave(actor, going[node])
                missed[actor] = f"leaves node {node}, which is taken away"
            elif self._is_busy(actor):
                missed[actor] = "has not joined yet, or is still busy with a former version"
            else:
                self._told.pop(actor, None)
                call = actor.__ray_call__.remote(_update, self.model, version, self._staged, self._deadline)
                asked[call] = actor
        done, late = _waited(list(asked), self._deadline)
        for ref in late:
            self._busy[asked[ref]] = ref
            missed[asked[ref]] = f"has not answered within {self._deadline} s"
        updated = []
        for ref in done:
            reason = self._reason(asked[ref], ref, version)
            if reason is None:
                updated.append(asked[ref])
            else:
                missed[asked[ref]] = reason
        for actor, reason in missed.items():
            log.warning("version %d of %s: %r: %s", version, self.model, actor, reason)
        return Sent(version, tuple(updated), missed)

    def _tell_to_leave(self, actor: Any, deadline_ms: int) -> None:
        """Others read from it no more when its node goes."""
        if actor not in self._told:
            left = left_by(deadline_ms, NOTICE)
            self._told[actor] = actor.__ray_call__.remote(_leave, self.model, left)

    def _reason(self, actor: Any, ref: Any, version: int) -> str | None:
        """Why a rollout has not the version, or None."""
        try:
            holds, self._nodes[actor] = ray.get(ref)
        except Exception as error:  # the rollout's own, and Ray's words for one that is lost
            return str(error).strip().split("\n")[-1]
        return None if holds is not None and holds >= version else f"holds version {holds}"

    def _is_busy(self, actor: Any) -> bool:
        ref = self._busy.get(actor)
        if ref is None:
            return False
        if not ray.wait([ref], timeout=0)[0]:
            return True
        del self._busy[actor]
        return False


def _waited(refs: list[Any], patience: float) -> tuple[list[Any], list[Any]]:
    """Those that are done by then, and the others."""
    done: tuple[list[Any], list[Any]] = (
        ray.wait(refs, num_returns=len(refs), timeout=patience) if refs else ([], [])
    )
    return done


# These run in the actors.


def _joined(actor: object, model: str, role: str) -> None:
    held(model, role)


def _publish(actor: object, model: str, version: int, deadline: float) -> None:
    held(model, "trainer").publish(version, deadline=deadline)


def _take_back(actor: object, model: str, deadline: float) -> None:
    held(model, "trainer").take_back(deadline=deadline)


def _update(actor: object, model: str, version: int, staged: bool, deadline: float) -> tuple[int | None, str]:
    weights = held(model, "rollout")
    weights.update(staged=staged, deadline=deadline)
    if weights.version is None or weights.version < version:
        # A server that has just taken over may not know of the version yet.
        weights.wait(available(at_least(version)), deadline=deadline)
        weights.update(staged=staged, deadline=deadline)
    return weights.version, where().node


def _leave(actor: object, model: str, deadline: float) -> None:
    held(model, "rollout").leave(deadline=deadline)
