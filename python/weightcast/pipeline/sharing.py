"""Which rank makes which tensor, so that all have about as many bytes to make and to serve."""

from collections.abc import Sequence


def share(costs: Sequence[int], of: int) -> list[int]:
    """For each cost, which of `of` ranks bears it: the largest first, each to whom has least so far. The same
    on all ranks that ask with the same costs."""
    if of < 1:
        raise ValueError("nobody is there to share the work")
    loads, bearers = [0] * of, [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda n: (-costs[n], n)):
        bearer = min(range(of), key=lambda rank: (loads[rank], rank))
        bearers[number] = bearer
        # What costs nothing is counted all the same, or one rank would have all of that.
        loads[bearer] += max(costs[number], 1)
    return bearers


def once_is_cheaper(readers: int, source_bytes: int, made_bytes: int) -> bool:
    """Whether a conversion is made once and kept, by the bytes that pass through the trainer's memory: each
    time it is made, the source is read and the product written; each reader reads what is kept."""
    made = source_bytes + made_bytes
    return made + readers * made_bytes < readers * made
