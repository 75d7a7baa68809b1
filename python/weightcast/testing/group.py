"""The shards of a replica in one process, each call made by all at once."""

import threading
from collections.abc import Callable
from typing import Any

from .. import handle as handles
from .. import layout as layouts
from ..replica import Replica


class Group:
    """Handles of one replica, registered."""

    def __init__(self, server: str, name: str, listed: list[layouts.Layout], **options: Any) -> None:
        self.handles: list[handles.Handle] = [None] * len(listed)  # type: ignore[list-item]

        def start(shard: int) -> None:
            me = Replica(name, shard, len(listed))
            self.handles[shard] = handles.open("policy", me, server=server, **options)
            self.handles[shard].register(listed[shard])

        _together(start, len(listed))

    def all(self, call: Callable[[handles.Handle], Any]) -> list[Any]:
        """Makes a call on every shard; the first error is raised."""
        return _together(lambda shard: call(self.handles[shard]), len(self.handles))

    def close(self) -> None:
        """Leaves."""
        self.all(lambda handle: handle.close())


def _together(call: Callable[[int], Any], of: int) -> list[Any]:
    results: list[Any] = [None] * of
    errors: list[BaseException] = []

    def run(shard: int) -> None:
        try:
            results[shard] = call(shard)
        except BaseException as error:  # raised below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(shard,)) for shard in range(of)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
