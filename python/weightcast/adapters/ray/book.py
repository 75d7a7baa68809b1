"""The addresses of a job's servers, in one order for all processes, whenever they look.

Handles that know lists in different orders could have two servers act at once. A server that has moved to
another node therefore comes behind all that are there: whoever knew those agrees with whoever looks now."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Entry:
    """Where a server is."""

    #: Its place in the list: the larger, the later it came there.
    place: int
    #: What clients connect to.
    address: str

    def encoded(self) -> bytes:
        """As bytes."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decoded(encoded: bytes) -> "Entry":
        """From its bytes."""
        return Entry(**json.loads(encoded))


def entered(books: Mapping[int, Entry], index: int, address: str) -> Entry:
    """The entry of a server that has started at an address. At the one that it had, it keeps its place."""
    before = books.get(index)
    if before is None:
        # Servers that start together are in the order of their numbers, whichever is the first to look.
        return Entry(0, address)
    if before.address == address:
        return before
    return Entry(1 + max(entry.place for entry in books.values()), address)


def in_order(books: Mapping[int, Entry]) -> tuple[str, ...]:
    """The list."""
    return tuple(
        entry.address for _, entry in sorted(books.items(), key=lambda item: (item[1].place, item[0]))
    )
