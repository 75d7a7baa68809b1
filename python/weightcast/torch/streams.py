"""Work on devices, and its end: each stage of a pipeline queues on streams of its own, and an event tells the
end."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, TypeVar

import torch

_R = TypeVar("_R")


class StageStreams:
    """A stream of one stage on each GPU; on the host, work has ended when it returns."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._streams = [torch.cuda.Stream(device) for device in devices if device.type == "cuda"]

    def run(self, call: Callable[[], _R]) -> _R:
        """Makes a call on these streams, and returns when the work that the call has queued has ended."""
        with torch.no_grad(), ExitStack() as entered:
            for stream in self._streams:
                entered.enter_context(torch.cuda.stream(stream))
            returned = call()
            events = [stream.record_event() for stream in self._streams]
        for event in events:
            event.synchronize()
        return returned


def end_here(tensors: Iterable[Any]) -> Callable[[], None] | None:
    """Waits, from any thread, for what this thread has queued for tensors of GPUs; None if there are none."""
    devices = {t.device for t in tensors if t is not None and t.device.type == "cuda"}
    if not devices:
        return None
    events = [torch.cuda.current_stream(device).record_event() for device in devices]

    def wait() -> None:
        for event in events:
            event.synchronize()

    return wait
