"""Names that were left over, with the names that they were probably meant to be."""

import difflib
from collections.abc import Callable, Iterable, Sequence

#: What a message lists of many things.
LISTED = 8


def listed(things: Sequence[str], line: Callable[[str], str] = str) -> list[str]:
    """A line for each of the first, and one that says how many more there are."""
    more = len(things) - LISTED
    return [line(thing) for thing in things[:LISTED]] + ([f"and {more} more"] if more > 0 else [])


def unmatched(what: str, left: Iterable[str], candidates: Iterable[str], advice: str) -> str:
    """A message about names on one side that nothing on the other side matches."""
    left, pool = sorted(left), sorted(set(candidates))

    def line(name: str) -> str:
        close = difflib.get_close_matches(name.partition(" ")[0], pool, n=3, cutoff=0.6)
        return name + (f" (nearest: {', '.join(close)})" if close else "")

    lines = [f"  {shown}" for shown in listed(left, line)]
    return "\n".join([f"{len(left)} {what}:", *lines, advice])
