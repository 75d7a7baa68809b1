"""How sure a share is."""

import math


def wilson(caught, of):
    """The 95 % interval of a share."""
    if of == 0:
        return 0.0, 1.0
    z, share = 1.959964, caught / of
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
