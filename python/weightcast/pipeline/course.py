"""The course of a pipeline: which piece of work may enter which stage. Decides, and does nothing."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from .slots import Slots

#: One GiB, the budget where none is given.
GIB = 1 << 30
#: Pieces of work under way at once: tiny tensors would fill a budget with thousands.
MOST = 64


class Stage(StrEnum):
    """What is done to a piece of work, in this order."""

    GATHER = "gather"
    TRANSFORM = "transform"
    SEND = "send"


@dataclass(frozen=True)
class Item:
    """One piece of work, and the bytes that it has beside the module's own, stage by stage."""

    #: What errors and traces call it: the published tensor, or the first of several.
    name: str
    #: While it is gathered, the whole tensors included.
    gathering: int = 0
    #: The whole tensors that come of that. They are let go when the transform has ended.
    gathered: int = 0
    #: While it is transformed, beside `gathered`: what is made, and what making takes.
    making: int = 0
    #: The staging memory that it is sent to. None: another rank transforms and sends it, and here it is
    #: only gathered, for the other ranks' sake.
    slot: Hashable | None = None
    #: Transfers out of the slot that begin when it is filled.
    transfers: int = 0

    @property
    def peak(self) -> int:
        """The most bytes that it has at one time."""
        return max(self.gathering, self.gathered + self.making)


@dataclass(frozen=True)
class Failure:
    """What ended a course."""

    tensor: str
    stage: Stage
    error: BaseException


class _State(Enum):
    WAITING = 0
    GATHERING = 1
    GATHERED = 2
    TRANSFORMING = 3
    MADE = 4
    SENDING = 5
    OVER = 6


class Course:
    """Pieces of work on their way through gather, transform and send, under a budget of bytes.

    Ask `next_gather`, `next_transform` and `next_send` what to begin: each names a piece of work and
    counts it as begun, or says None: not now. Report ends with `gathered`, `transformed`, `sent` and
    `transferred`, and only ends: that something has been queued is none.

    The budget is strict: what is admitted, at its peak, fits into it together, or is one piece of work
    alone. Gathers begin in the order of the list, whatever fits: the order is the same on all ranks, so
    that no two wait for each other. All else takes the first piece that is ready.

    The first failure ends the course: nothing is transformed or sent any more. With `collective`, what has
    not been gathered still is, and dropped, since other ranks wait for this one's part; unless a gather
    itself failed, after which gathers of this rank and the others' no longer fit together.
    """

    def __init__(
        self,
        items: Sequence[Item],
        budget: int = GIB,
        *,
        slots: Slots | None = None,
        most: int = MOST,
        collective: bool = True,
    ) -> None:
        if budget < 0 or most < 1:
            raise ValueError(f"a budget of {budget} bytes, {most} pieces at once: none could begin")
        self.items = list(items)
        self._budget, self._most, self._collective = budget, most, collective
        self._slots = Slots() if slots is None else slots
        self._states = [_State.WAITING] * len(self.items)
        #: Bytes that are kept for each piece under way.
        self._kept: dict[int, int] = {}
        self._next = 0
        self._failure: Failure | None = None
        #: The most bytes that were kept at one time.
        self.peak = 0

    # Questions

    @property
    def staged(self) -> int:
        """Bytes that are kept now."""
        return sum(self._kept.values())

    @property
    def failure(self) -> Failure | None:
        """What ended the course before its time."""
        return self._failure

    @property
    def gathers_left(self) -> bool:
        """Whether a gather has to begin yet."""
        if self._failure is not None and (not self._collective or self._failure.stage is Stage.GATHER):
            return False
        return self._next < len(self.items)

    @property
    def over(self) -> bool:
        """Whether nothing is under way, nor will be. Transfers count; after a failure they do not, and
        neither do gathers if a gather was what failed: their ends may never come."""
        if self.gathers_left:
            return False
        unended = set(self._states) - {_State.WAITING, _State.OVER}
        if self._failure is None:
            return not unended and not self._slots.under_way
        if self._failure.stage is Stage.GATHER:
            unended -= {_State.GATHERING}
        return not unended

    def is_over(self, number: int) -> bool:
        """Whether a piece is done, or given up."""
        return self._states[number] is _State.OVER

    # What is begun

    def next_gather(self) -> int | None:
        """The next piece of the list, if it fits."""
        if not self.gathers_left or not self._fits(self.items[self._next]):
            return None
        number, self._next = self._next, self._next + 1
        self._states[number] = _State.GATHERING
        self._keep(number, self.items[number].peak)
        return number

    def _fits(self, item: Item) -> bool:
        if not self._kept:
            return True
        return len(self._kept) < self._most and self.staged + item.peak <= self._budget

    def next_transform(self) -> int | None:
        """The first piece that is gathered."""
        return self._begin(_State.GATHERED, _State.TRANSFORMING)

    def next_send(self) -> int | None:
        """The first piece that is made and whose slot is free."""
        number = self._begin(_State.MADE, _State.SENDING)
        if number is not None:
            self._slots.fill(self.items[number].slot)
        return number

    def _begin(self, ready: _State, begun: _State) -> int | None:
        for number in sorted(self._kept):
            if self._states[number] is not ready:
                continue
            if ready is _State.MADE and not self._slots.is_free(self.items[number].slot):
                continue
            self._states[number] = begun
            return number
        return None

    # What has ended

    def gathered(self, number: int) -> None:
        """The whole tensors are there."""
        self._expect(number, _State.GATHERING)
        item = self.items[number]
        if self._failure is not None or item.slot is None:
            self._end(number)
            return
        self._states[number] = _State.GATHERED
        self._keep(number, item.gathered + item.making)

    def transformed(self, number: int, held: int) -> None:
        """What is sent has been made, and the rest let go: `held` bytes are left."""
        self._expect(number, _State.TRANSFORMING)
        if self._failure is not None:
            self._end(number)
            return
        self._states[number] = _State.MADE
        self._keep(number, held)

    def sent(self, number: int) -> None:
        """The slot has all of it, and its transfers begin."""
        self._expect(number, _State.SENDING)
        item = self.items[number]
        self._slots.filled(item.slot, 0 if self._failure else item.transfers)
        self._end(number)

    def transferred(self, slot: Hashable) -> None:
        """One transfer out of a slot is over."""
        self._slots.transferred(slot)

    def fail(self, number: int | None, stage: Stage, error: BaseException) -> bool:
        """A stage of a piece has failed, or a transfer of what it has sent; with None, whoever runs all of
        it wants no more. False if the course had failed already: the first failure is the one that is
        told."""
        first = self._failure is None
        if first:
            name = "nothing" if number is None else self.items[number].name
            self._failure = Failure(name, stage, error)
        if number is not None:
            if self._states[number] is _State.SENDING:
                self._slots.filled(self.items[number].slot, 0)
            self._end(number)
        for other in list(self._kept):
            if self._states[other] in (_State.GATHERED, _State.MADE):
                self._end(other)
        return first

    def alone(self) -> None:
        """From now on pieces go one after the other: their sizes are not what was said."""
        self._most = 1

    def _end(self, number: int) -> None:
        self._states[number] = _State.OVER
        self._kept.pop(number, None)

    def _keep(self, number: int, nbytes: int) -> None:
        self._kept[number] = nbytes
        self.peak = max(self.peak, self.staged)

    def _expect(self, number: int, state: _State) -> None:
        if self._states[number] is not state:
            raise ValueError(f"{self.items[number].name} is {self._states[number].name}, not {state.name}")
