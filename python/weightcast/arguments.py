"""Checks of arguments that the native half would refuse without their names."""

import operator
from typing import SupportsIndex


def counted(name: str, number: SupportsIndex) -> int:
    """The number that is given for `name`, where the native half counts in 32 bits."""
    try:
        index = operator.index(number)
    except TypeError:
        raise TypeError(f"{name} is an integer, not {number!r}") from None
    if not 0 <= index < 2**32:
        raise ValueError(f"{name} is an integer from 0 to 2**32 - 1, not {index}")
    return index
