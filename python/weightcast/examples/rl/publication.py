"""When the trainers' weights may be read, and when they may be written."""

import time

import weightcast as wc


class Publication:
    """Publishes version after version. In place: until the next step of the optimizer. Of a copy
    (`beside`): until the next version, while the weights themselves change."""

    def __init__(self, handle: wc.Handle, beside: bool, timeout: float):
        self.handle, self.beside, self.timeout = handle, beside, timeout
        #: Seconds that the trainer stood still to publish, and for its readers to leave.
        self.stalled = 0.0

    def publish(self, version: int) -> float:
        """Publishes the weights as they are. When that was done."""
        self._take_back()
        began = time.monotonic()
        self.handle.publish(version, deadline=self.timeout)
        published = time.monotonic()
        self.stalled += published - began
        return published

    def before_change(self) -> float:
        """The weights may be written when this returns. When that was."""
        if not self.beside:
            self._take_back()
        return time.monotonic()

    def _take_back(self) -> None:
        if self.handle.version is None:
            return
        began = time.monotonic()
        self.handle.unpublish(deadline=self.timeout)
        self.stalled += time.monotonic() - began
