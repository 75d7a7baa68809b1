"""A manager that has trainers publish and rollouts update, from the driver."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from ... import _core
from .weights import DEADLINE, held

log = logging.getLogger("weightcast")


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

    def send(self, version: int | None = None) -> Sent:
        """Has all trainers publish `version` (by default the next number), and all rollouts update.

        Raises what a trainer raises; rollouts that fail are in the answer."""
        if self.version == 0:
            # Trainers that open after one has published would begin another run.
            ray.get([actor.__ray_call__.remote(_joined, self.model) for actor in self.trainers])
        number = self._next(version)
        self._publish(number)
        try:
            return self._update(number)
        finally:
            if not self._keep:
                self._take_back()

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
            self._take_back()
            raise

    def _take_back(self) -> None:
        asked = [actor.__ray_call__.remote(_take_back, self.model, self._deadline) for actor in self.trainers]
        # One that is lost has nothing published.
        ray.wait(asked, num_returns=len(asked), timeout=self._deadline)

    def _update(self, version: int) -> Sent:
        missed: dict[Any, str] = {}
        asked: dict[Any, Any] = {}
        for actor in self.rollouts:
            if self._is_busy(actor):
                missed[actor] = "is still busy with a former version"
            else:
                asked[actor.__ray_call__.remote(_update, self.model, self._staged, self._deadline)] = actor
        done, late = (
            ray.wait(list(asked), num_returns=len(asked), timeout=self._deadline) if asked else ([], [])
        )
        for ref in late:
            self._busy[asked[ref]] = ref
            missed[asked[ref]] = f"has not answered within {self._deadline} s"
        updated = []
        for ref in done:
            reason = _reason(ref, version)
            if reason is None:
                updated.append(asked[ref])
            else:
                missed[asked[ref]] = reason
        for actor, reason in missed.items():
            log.warning("version %d of %s: %r: %s", version, self.model, actor, reason)
        return Sent(version, tuple(updated), missed)

    def _is_busy(self, actor: Any) -> bool:
        ref = self._busy.get(actor)
        if ref is None:
            return False
        if not ray.wait([ref], timeout=0)[0]:
            return True
        del self._busy[actor]
        return False


def _reason(ref: Any, version: int) -> str | None:
    """Why a rollout has not the version, or None."""
    try:
        holds = ray.get(ref)
    except Exception as error:  # the rollout's own, and Ray's words for one that is lost
        return str(error).strip().split("\n")[-1]
    if holds is None or holds < version:
        return f"holds version {holds}"
    return None


# These run in the actors.


def _joined(actor: object, model: str) -> None:
    held(model, "trainer")


def _publish(actor: object, model: str, version: int, deadline: float) -> None:
    held(model, "trainer").publish(version, deadline=deadline)


def _take_back(actor: object, model: str, deadline: float) -> None:
    held(model, "trainer").take_back(deadline=deadline)


def _update(actor: object, model: str, staged: bool, deadline: float) -> int | None:
    weights = held(model, "rollout")
    weights.update(staged=staged, deadline=deadline)
    return weights.version
