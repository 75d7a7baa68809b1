"""Which shard of which replica this process is."""

from typing import Any

import jax

from .. import _core
from ..copies import copies_of
from ..replica import Replica
from .leaves import leaves


def replica(name: str, params: Any, **labels: Any) -> Replica:
    """Which shard of which replica this process is, read off the shardings of a tree of arrays; nothing is
    asked of other processes.

    Processes that hold the same boxes of all arrays hold copies: `name-0`, `name-1`, ... if there are
    several. The others are the shards of one. `labels` go to `Replica`.
    """
    listed = list(leaves(params))
    processes = sorted({process for leaf in listed for process in leaf.processes()})
    own = jax.process_index()
    if own not in processes:
        raise _core.Misuse(f"process {own} holds nothing of these arrays, only processes {processes[:8]} do")
    holdings = [tuple((leaf.name, leaf.boxes(process)) for leaf in listed) for process in processes]
    copies = copies_of(holdings)
    number = next(at for at, copy in enumerate(copies) if processes.index(own) in copy)
    copy = copies[number]
    numbered = f"{name}-{number}" if len(copies) > 1 else name
    return Replica(numbered, shard=copy.index(processes.index(own)), num_shards=len(copy), **labels)
