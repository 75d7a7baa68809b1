"""Why another way is ahead, where it is: written by hand, after a look at each."""

from typing import Any

DIGESTS = "nothing is digested there, here every byte at both ends, on processors that copies keep busy"
TINY = (
    "shapes are known to both ends and nothing is looked at; here, by the profile of a direct read, which "
    "the profiler slows: addresses of tensors in Python 3 ms, digests 4 ms of the processor, question, grant "
    "and description 3 ms"
)
BUSY = "nothing is digested there; with eight readers both processors are busy all the time"
LEVEL = "level, within the spread"

CAUSES: dict[tuple[str, str, str], str] = {
    ("tiny", "weightcast", "sockets"): TINY,
    ("tiny", "weightcast", "sockets-unix"): TINY,
    ("tiny", "weightcast-shared", "sockets"): TINY,
    ("tiny", "weightcast-shared", "sockets-unix"): TINY,
    ("tiny", "weightcast-tcp", "sockets"): TINY,
    ("*", "weightcast", "sockets-unix"): DIGESTS,
    ("*", "weightcast-tcp", "sockets"): DIGESTS,
    ("*", "weightcast-tcp", "gloo"): DIGESTS,
    ("qwen2.5-0.5b", "weightcast", "ray"): BUSY,
    ("qwen2.5-0.5b", "weightcast", "disk"): BUSY,
    ("few", "weightcast", "ucx"): DIGESTS,
    ("few", "weightcast-tcp", "nixl-tcp"): LEVEL,
    ("tiny", "weightcast", "nixl"): LEVEL,
    ("qwen2.5-0.5b, 1", "weightcast", "nixl"): LEVEL,
    ("qwen2.5-0.5b, 1", "weightcast", "ucx"): LEVEL,
    ("qwen2.5-0.5b, 1", "weightcast-tcp", "nixl-tcp"): LEVEL,
    ("qwen2.5-0.5b", "weightcast", "nixl"): BUSY,
    ("qwen2.5-0.5b", "weightcast", "ucx"): BUSY,
    ("qwen2.5-0.5b", "weightcast-shared", "ray"): BUSY,
    ("qwen2.5-0.5b", "weightcast-shared", "disk"): BUSY,
    ("qwen2.5-0.5b", "weightcast-shared", "nixl"): BUSY,
    ("qwen2.5-0.5b", "weightcast-shared", "ucx"): BUSY,
}
"""Of a case (with a number of readers, or without), one of ours and another way; `*` for any case."""
UNKNOWN = "not looked into"


def cause(found: dict[str, Any]) -> str:
    """Of one row of `figures.ahead`."""
    for case in f"{found['case']}, {found['readers']}", found["case"], "*":
        if why := CAUSES.get((case, found["ours"], found["way"])):
            return why
    return UNKNOWN
