"""Why another way is ahead, where it is: written by hand, after a look at each."""

from typing import Any

CAUSES: dict[tuple[str, str, str], str] = {}
"""Of a case, one of ours and another way; `*` for any case."""
UNKNOWN = "not looked into"


def cause(found: dict[str, Any]) -> str:
    """Of one row of `figures.ahead`."""
    for case in found["case"], "*":
        if why := CAUSES.get((case, found["ours"], found["way"])):
            return why
    return UNKNOWN
