"""Whose turn it is to exchange weights of an engine. vLLM's pause is one flag: of two trainers (of the base
and of an adapter, or of two adapters) one would resume what the other one has paused."""

import time
from typing import Any

from ... import _core
from .agreed import together


class Turn:
    """One worker's note of who exchanges weights now, until when at the latest: trainers die."""

    def __init__(self) -> None:
        self._holder: str | None = None
        self._end = 0.0

    def take(self, holder: str, seconds: float) -> None:
        """Again, by the same holder (the successor of a lost trainer): begins anew."""
        if self._holder not in (None, holder) and time.monotonic() < self._end:
            raise _core.Misuse(f"another update of this engine is under way ({self._holder}); try again")
        self._holder, self._end = holder, time.monotonic() + seconds

    def give_back(self, holder: str) -> None:
        """Does nothing if it is another's."""
        if self._holder == holder:
            self._holder = None


def turn_step(worker: Any, step: str, holder: str, seconds: float = 0.0) -> None:
    """`weightcast_turn` of a worker: `take`, `give_back`. All workers take a step, or none counts as having
    taken it."""

    def give_back() -> None:
        worker.weight_transfer_engine.turn.give_back(holder)

    def take() -> None:
        worker.weight_transfer_engine.turn.take(holder, seconds)

    if step == "take":
        together(worker, take, undo=give_back)
    else:
        together(worker, give_back)
