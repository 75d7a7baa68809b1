"""Why names may be left over."""

import fnmatch
from collections.abc import Mapping

#: The reason, by pattern (`fnmatch`).
Reasons = Mapping[str, str]


def matching(name: str, allowed: Reasons) -> str | None:
    """Why a name may be left over, if it may."""
    return next((why for at, why in allowed.items() if fnmatch.fnmatchcase(name, at)), None)
