"""What the tests share: a server, and groups whose shards call at the same time."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weightcast as wc

#: Seconds in which everything here must have happened.
SOON = 20.0


def token_file(path: Path, token: str) -> Path:
    """Writes a token as its owner must: for nobody else."""
    path.touch(mode=0o600)
    path.write_text(token)
    return path


@pytest.fixture
def server() -> Iterator[wc.Server]:
    with wc.serve(lease=2.0, drain_deadline=5.0) as running:
        yield running


@pytest.fixture
def patient_server() -> Iterator[wc.Server]:
    """For tests whose ranks keep all cores busy while they import torch: nobody loses a lease for that."""
    with wc.serve(lease=30.0, drain_deadline=5.0) as running:
        yield running


class Group:
    """The handles of one replica, called together as the processes of a group would."""

    def __init__(self, handles: list[wc.Handle]) -> None:
        self.handles = handles

    def __getitem__(self, index: int) -> wc.Handle:
        return self.handles[index]

    def each(self, call: Callable[[wc.Handle], Any]) -> list[Any]:
        """Runs `call` for every shard at once; returns results or the errors raised."""
        results: list[Any] = [None] * len(self.handles)

        def run(index: int) -> None:
            try:
                results[index] = call(self.handles[index])
            except Exception as error:  # the test looks at it
                results[index] = error

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(self.handles))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def all(self, call: Callable[[wc.Handle], Any]) -> list[Any]:
        """The same; an error fails the test."""
        results = self.each(call)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


@pytest.fixture
def group(server: wc.Server) -> Iterator[Callable[..., Group]]:
    """`group(name, layouts, role="rollout")` opens one shard per layout and registers them, unless
    told not to."""
    opened: list[Group] = []

    def make(
        name: str, layouts: list[wc.Layout], model: str = "policy", register: bool = True,
        **options: Any,
    ) -> Group:
        of = len(layouts)
        options.setdefault("server", server.address)
        made: list[Any] = [None] * of

        def start(index: int) -> None:
            me = wc.Replica(name, shard=index, num_shards=of)
            made[index] = wc.open(model, me, **options)

        threads = [threading.Thread(target=start, args=(i,)) for i in range(of)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(made), "a shard could not open"
        joined = Group(made)
        opened.append(joined)
        if register:
            joined.all(lambda h: h.register(layouts[h.replica.shard], deadline=SOON))
        return joined

    yield make
    for joined in reversed(opened):
        joined.each(lambda h: h.close(deadline=1.0))
