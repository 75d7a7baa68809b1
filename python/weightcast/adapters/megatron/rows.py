"""Rows that Megatron keeps in another order than checkpoints do, or that checkpoints do not have."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Heads:
    """Attention heads: how many have queries, how many keys and values, and the rows of each."""

    queries: int
    groups: int
    channels: int

    def members(self) -> tuple[int, int, int]:
        """Rows of all queries, of all keys, of all values."""
        return (self.queries * self.channels, self.groups * self.channels, self.groups * self.channels)

    def runs(self, first: int, count: int) -> list[tuple[int, int, int]]:
        """What `count` rows of the fused projection from `first` on are, in their order: of queries (0),
        keys (1) or values (2), the first row there, and how many.

        Megatron's rows go group by group: the queries of the group, its key, its value. A rank's rows may
        begin and end within a head.
        """
        each = [rows // self.groups for rows in self.members()]
        runs, at = [], 0
        for group in range(self.groups):
            for member, rows in enumerate(each):
                start, end = max(first, at), min(first + count, at + rows)
                if start < end:
                    runs.append((member, group * rows + start - at, end - start))
                at += rows
        return runs


def within(size: int, first: int, count: int) -> tuple[int, int]:
    """First and number of those of `count` rows from `first` on that are below `size`: the rest of a
    vocabulary is padding."""
    start = min(first, size)
    return start, min(first + count, size) - start
