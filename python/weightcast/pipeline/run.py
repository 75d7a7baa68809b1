"""The threads of a pipeline. What may begin, and when, is decided by `course`; here it is begun, and its end
waited for.

Gathers begin on the caller's thread. The end of each is waited for by a thread for its lane, since what
one lane gathers ends in order and lanes do not wait for each other. Transforms have a thread, sends
another one.
"""

import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

from .. import _core, spans
from ..progress import Progress
from .course import GIB, MOST, Course, Item, Stage
from .failure import StageFailed
from .slots import Slots

log = logging.getLogger("weightcast")

#: Told when a transfer is over: with its error, or None.
Done = Callable[[BaseException | None], None]

#: Numbers of pieces whose gathers have begun, and when; None ends the lane.
_Begun: TypeAlias = "SimpleQueue[tuple[int, int] | None]"


@dataclass
class Gathering:
    """A gather that has begun."""

    #: The whole tensors; their bytes are there once `wait` has returned.
    tensors: list[Any]
    #: Returns when the gather has ended, by its own word; None if it has.
    wait: Callable[[], object] | None = None


@dataclass(frozen=True)
class Work:
    """A piece of work, and how each of its stages is done. What a stage returns is kept no longer than
    `item` says, so a stage keeps nothing of what it was given."""

    item: Item
    #: Begins the gather. On the caller's thread.
    gather: Callable[[], Gathering]
    #: Makes what is sent of the whole tensors, and says how many bytes are left then. Returns when made.
    transform: Callable[[list[Any]], tuple[list[Any], int]]
    #: Copies what was made into the slot. Returns when the last byte is there.
    send: Callable[[list[Any]], object]
    #: Transfers out of the slot, as many as the item says: each begins one, and calls what it is given when
    #: that is over, from any thread.
    transfers: Sequence[Callable[[Done], object]] = ()
    #: Gathers of one lane end in the order in which they begin: those over one device mesh.
    lane: str = ""
    #: Bytes that are sent, for the progress.
    nbytes: int = 0


class Pipeline:
    """Runs pieces of work through gather, transform and send, under a budget of bytes."""

    def __init__(self, budget: int = GIB, *, overlap: bool = True, name: str = "pipeline") -> None:
        """Without `overlap`, a piece of work begins when the one before is over. `name` is for traces."""
        self._budget, self._most, self._name = budget, MOST if overlap else 1, name
        self._slots = Slots()
        self._changed = threading.Condition()
        self._course: Course | None = None
        #: The most bytes that were admitted at one time in the last run.
        self.peak = 0

    def run(
        self, works: Sequence[Work], *, collective: bool = True, progress: Progress | None = None
    ) -> None:
        """Does all of it, and returns when the last transfer is over. Raises `StageFailed` if a stage fails,
        when all have ended but for gathers of which one has failed. With `collective`, gathers are still
        taken part in after a failure, since other ranks wait in them. What `progress` raises, and Ctrl-C,
        ends the run at once."""
        items = [work.item for work in works]
        course = Course(items, self._budget, slots=self._slots, most=self._most, collective=collective)
        self._course = course
        try:
            _Run(self._name, works, course, self._changed, progress).run()
        finally:
            self.peak, self._course = course.peak, None

    def alone(self) -> None:
        """From now on pieces of work go one after the other, in this run and later ones: their sizes are not
        what their items say."""
        with self._changed:
            self._most = 1
            if self._course is not None:
                self._course.alone()


class _Run:
    """One run."""

    def __init__(
        self,
        name: str,
        works: Sequence[Work],
        course: Course,
        changed: threading.Condition,
        progress: Progress | None,
    ) -> None:
        self._name, self._works, self._course, self._changed = name, works, course, changed
        #: What each piece has between two stages: the whole tensors, or what was made of them.
        self._tensors: dict[int, list[Any]] = {}
        #: By lane, the gathers whose ends are waited for, and the thread that does.
        self._lanes: dict[str, tuple[_Begun, threading.Thread]] = {}
        self._waits: dict[int, Callable[[], object]] = {}
        self._progress, self._told, self._sent = progress, 0, 0
        self._total = sum(work.nbytes for work in works if work.item.slot is not None)

    def run(self) -> None:
        stages = [
            self._start("transform", lambda: self._stage(self._course.next_transform, self._transform)),
            self._start("send", lambda: self._stage(self._course.next_send, self._send)),
        ]
        try:
            while (number := self._next_gather()) is not None:
                self._gather(number)
        except BaseException as error:
            # Ctrl-C, or what the progress has raised.
            self._failed(None, Stage.GATHER, error)
            raise
        finally:
            for thread in stages:
                thread.join()
            self._end_lanes()
        if (failure := self._course.failure) is not None:
            raise StageFailed(failure.tensor, failure.stage, _said(failure.error)) from failure.error

    def _start(self, stage: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=entered, args=(target,), name=f"{self._name}-{stage}", daemon=True)
        thread.start()
        return thread

    def _end_lanes(self) -> None:
        failure = self._course.failure
        for begun, thread in self._lanes.values():
            begun.put(None)
            # Where a gather has failed, the end of another one may never come.
            if failure is None or failure.stage is not Stage.GATHER:
                thread.join()

    # What is done next

    def _next_gather(self) -> int | None:
        """On the caller's thread: waits for a gather to begin, and tells the progress meanwhile. None when
        all is over."""
        while True:
            with self._changed:
                number = self._course.next_gather()
                over = self._course.over
                if number is None and not over and not self._untold:
                    self._changed.wait()
                    continue
            self._tell()
            if number is not None or over:
                return number

    def _stage(self, choose: Callable[[], int | None], do: Callable[[int], None]) -> None:
        while (number := self._chosen(choose)) is not None:
            do(number)

    def _chosen(self, choose: Callable[[], int | None]) -> int | None:
        """Waits for something to begin; None when all is over."""
        with self._changed:
            while not self._course.over:
                if (number := choose()) is not None:
                    return number
                self._changed.wait()
        return None

    @property
    def _untold(self) -> bool:
        return self._progress is not None and self._told < self._sent

    def _tell(self) -> None:
        if self._progress is not None and self._untold:
            self._told = self._sent
            self._progress(self._told, self._total)

    # The stages

    def _gather(self, number: int) -> None:
        work, start = self._works[number], spans.now()
        try:
            gathering = work.gather()
        except Exception as error:
            self._failed(number, Stage.GATHER, error)
            return
        self._tensors[number], wait = gathering.tensors, gathering.wait
        # Nothing here may hold what other threads are to let go of.
        del gathering
        if wait is None:
            self._gathered(number, start)
            return
        self._waits[number] = wait
        del wait
        if work.lane not in self._lanes:
            begun: _Begun = SimpleQueue()
            thread = self._start(f"gather {work.lane}", lambda: self._lane(begun))
            self._lanes[work.lane] = (begun, thread)
        self._lanes[work.lane][0].put((number, start))

    def _lane(self, begun: "_Begun") -> None:
        before = 0
        while (one := begun.get()) is not None:
            number, start = one
            try:
                self._waits.pop(number)()
            except Exception as error:
                self._failed(number, Stage.GATHER, error)
                continue
            # Queued behind the one before, it was gathered from that one's end on.
            self._gathered(number, max(start, before))
            before = spans.now()

    def _gathered(self, number: int, start: int) -> None:
        self._span(Stage.GATHER, number, start, self._works[number].lane)
        with self._changed:
            if self._works[number].item.slot is None or self._course.failure is not None:
                self._tensors.pop(number, None)
            self._course.gathered(number)
            self._changed.notify_all()

    def _transform(self, number: int) -> None:
        start = spans.now()
        try:
            self._tensors[number], held = self._works[number].transform(self._tensors.pop(number))
        except Exception as error:
            self._failed(number, Stage.TRANSFORM, error)
            return
        self._span(Stage.TRANSFORM, number, start)
        with self._changed:
            if self._course.failure is not None:
                self._tensors.pop(number, None)
            self._course.transformed(number, held)
            self._changed.notify_all()

    def _send(self, number: int) -> None:
        work, start = self._works[number], spans.now()
        try:
            work.send(self._tensors.pop(number))
        except Exception as error:
            self._failed(number, Stage.SEND, error)
            return
        self._span(Stage.SEND, number, start)
        with self._changed:
            self._course.sent(number)
            self._sent += work.nbytes
            ended = self._course.failure is not None
            self._changed.notify_all()
        if not ended:
            for transfer in work.transfers:
                self._transfer(number, transfer)

    def _transfer(self, number: int, transfer: Callable[[Done], object]) -> None:
        slot, told = self._works[number].item.slot, False

        def done(error: BaseException | None) -> None:
            nonlocal told
            if error is not None:
                self._failed(number, Stage.SEND, error)
            with self._changed:
                if not told:
                    self._course.transferred(slot)
                told = True
                self._changed.notify_all()

        try:
            transfer(done)
        except Exception as error:
            done(error)

    def _failed(self, number: int | None, stage: Stage, error: BaseException) -> None:
        if number is not None:
            _let_go(error)
        with self._changed:
            if self._course.fail(number, stage, error) and number is not None:
                log.debug("%s of %s has failed: %r", stage, self._works[number].item.name, error)
            # What is not transformed or sent any more is let go.
            for other in list(self._tensors):
                if self._course.is_over(other):
                    del self._tensors[other]
            self._changed.notify_all()

    def _span(self, stage: Stage, number: int, start: int, lane: str = "") -> None:
        work = self._works[number]
        track = f"{self._name} {stage} {lane}".rstrip()
        spans.write(stage, track, start, spans.now(), tensor=work.item.name, bytes=work.nbytes)


def entered(target: Callable[[], None]) -> None:
    """Runs in each thread of a pipeline: a test may put something around all of them."""
    target()


def _let_go(error: BaseException | None) -> None:
    """Empties the frames that an error has passed: they hold the tensors of a stage, while the gathers of
    other ranks need the room. The lines stay."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _said(error: BaseException) -> str:
    own = isinstance(error, _core.WeightcastError)
    return str(error) if own else f"{type(error).__name__}: {error}"
