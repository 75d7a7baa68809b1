"""Which ranks are shards of one replica, and which hold copies of each other, by what each holds."""

from collections.abc import Hashable, Sequence


def copies_of(holdings: Sequence[Hashable]) -> list[list[int]]:
    """Groups ranks, numbered from 0, into copies, each of which is a whole replica: whatever any rank holds
    is held by a rank of every copy. `holdings` says what each rank holds; two that are equal are of the same
    boxes of the same tensors.

    There are as many copies as every holding has holders; where some holdings have more, copies hold those
    more than once. The first copy has the first holder of each, and so on: of ranks that lie on a mesh in
    row-major order, those that differ along no other dimensions than replicated ones are one in each copy.
    """
    holders: dict[Hashable, list[int]] = {}
    for rank, holding in enumerate(holdings):
        holders.setdefault(holding, []).append(rank)
    copies: list[list[int]] = [[] for _ in range(min(map(len, holders.values()), default=0))]
    for ranks in holders.values():
        for number, rank in enumerate(ranks):
            copies[number % len(copies)].append(rank)
    return [sorted(copy) for copy in copies]
