"""Keeps an SGLang engine from generating while its parameters are no whole version, or its fleet stands
still.
"""

from collections.abc import Callable
from typing import Any

from sglang.srt.managers.scheduler import Scheduler

#: Where SGLang's scheduler keeps whether it was paused; every loop of it looks there before each batch.
PAUSED = "_engine_paused"


def watch_generation(serves: Callable[[], bool]) -> None:
    """Has the scheduler of this process count as paused, whoever has asked it to go on, while `serves` says
    no. Requests wait meanwhile. Done once: later calls change nothing."""
    if hasattr(Scheduler, PAUSED):
        return

    def paused(self: Any) -> bool:
        return self.__dict__[PAUSED] or not serves()

    def pause(self: Any, asked: bool) -> None:
        self.__dict__[PAUSED] = asked

    setattr(Scheduler, PAUSED, property(paused, pause))
