"""Names that were left over, with the names that they were probably meant to be."""

import difflib
from collections.abc import Iterable

#: Left-over names that a message lists.
LISTED = 8


def unmatched(what: str, left: Iterable[str], candidates: Iterable[str], advice: str) -> str:
    """A message about names on one side that nothing on the other side matches."""
    left, pool = sorted(left), sorted(set(candidates))
    lines = [f"{len(left)} {what}:"]
    for name in left[:LISTED]:
        close = difflib.get_close_matches(name.partition(" ")[0], pool, n=3, cutoff=0.6)
        lines.append(f"  {name}" + (f" (nearest: {', '.join(close)})" if close else ""))
    if len(left) > LISTED:
        lines.append(f"  and {len(left) - LISTED} more")
    return "\n".join([*lines, advice])
