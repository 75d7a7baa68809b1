"""Staging memory that is filled again: only when all that was read out of it before is over."""

from collections.abc import Hashable


class Slots:
    """Which slots of staging memory may be filled. Decides, and does nothing.

    A slot is `filling`, then its transfers are under way, then it is free. Slots outlive a course: a
    transfer that goes on after the course that filled its slot holds the next course up.
    """

    def __init__(self) -> None:
        self._filling: set[Hashable] = set()
        #: Transfers under way, by slot; slots without any are not here.
        self._under_way: dict[Hashable, int] = {}

    def is_free(self, slot: Hashable) -> bool:
        """Whether the slot may be filled."""
        return slot not in self._filling and slot not in self._under_way

    def fill(self, slot: Hashable) -> None:
        """Filling begins."""
        if not self.is_free(slot):
            raise ValueError(f"slot {slot!r} is filled while it is filled or read already")
        self._filling.add(slot)

    def filled(self, slot: Hashable, transfers: int) -> None:
        """Filling has ended, and this many transfers out of the slot begin."""
        self._filling.remove(slot)
        if transfers:
            self._under_way[slot] = transfers

    def transferred(self, slot: Hashable) -> None:
        """One of the slot's transfers is over: its bytes have arrived, or nobody reads them any more."""
        left = self._under_way.get(slot, 0)
        if left == 0:
            raise ValueError(f"slot {slot!r} has no transfer that could be over")
        if left == 1:
            del self._under_way[slot]
        else:
            self._under_way[slot] = left - 1

    @property
    def under_way(self) -> int:
        """Transfers that are not over, of all slots."""
        return sum(self._under_way.values())
