"""Whether live replicas hold the same, whatever their layouts, and where they do not."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _core, selector


@dataclass(frozen=True)
class Verified:
    """One of the replicas that were compared."""

    name: str
    shards: int
    #: That its shards hold.
    bytes: int
    #: All copies of what several of its shards hold are the same.
    copies_agree: bool
    #: Its content has the digest that the version was sealed with; `None` while it is not sealed.
    as_published: bool | None


@dataclass(frozen=True)
class HeldBy:
    """A shard that holds a place."""

    replica: str
    shard: int
    #: Its data port.
    address: str
    #: Whether the shard's slice around it is what was sealed, or verified when it was read; `None`
    #: where that is not known.
    as_published: bool | None


@dataclass(frozen=True)
class DifferentRange:
    """A place of a tensor that is not the same everywhere."""

    #: (start, stop) by dimension.
    slice: tuple[tuple[int, int], ...]
    #: Every row of it differs, and all that differs in these rows is in it; else some rows do.
    exact: bool
    #: It differed and then did not any more: somebody writes to it.
    moving: bool
    #: Who holds it, those together that hold the same.
    readings: tuple[tuple[HeldBy, ...], ...]


@dataclass(frozen=True)
class Difference:
    """A tensor that is not the same everywhere."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    #: The first 16 places.
    ranges: tuple[DifferentRange, ...]
    #: How many there are beyond these.
    more_ranges: int


@dataclass(frozen=True)
class Verdict:
    """What `verify` found; true if all is equal."""

    #: The replicas hold the same, all copies within each are the same, and nothing is known to
    #: differ from what was published.
    equal: bool
    model: str
    epoch: int
    version: int
    #: Two, or one that was compared with what it was sealed as.
    replicas: tuple[Verified, ...]
    #: How many tensors were compared.
    tensors: int
    #: The names of all that differ.
    different: tuple[str, ...]
    #: Where, for the first 16 of them.
    differences: tuple[Difference, ...]
    #: Bytes that shards digested, and bytes that were sent for it.
    digested: int
    moved: int
    seconds: float

    def __bool__(self) -> bool:
        return self.equal


def verify(
    model: str,
    replica: str,
    other: str | None = None,
    *,
    sealed: bool = False,
    version: "selector.Selector | int | str | None" = None,
    server: str | Sequence[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    job: str | None = None,
    deadline: float = 600.0,
) -> Verdict:
    """Compares what two live replicas of a version hold now, without moving it.

    Without `other` any other replica that holds the version is taken, a trainer first; if there is
    none, or with `sealed=True`, the replica is compared with what it was sealed as, which finds the
    slices that have changed since but not their rows. With `version` both have to hold that one.

    Shards digest their memory as it is and send digests alone. A replica that gives its version up
    meanwhile raises `Unverified`, as does all else of which nothing can be said. The digests find
    accidents, not adversaries.
    """
    if other is not None and sealed:
        raise ValueError("either another replica or sealed=True")
    wanted = None if version is None else selector.parse(version)
    servers = server if server is None or isinstance(server, str) else ",".join(server)
    token = None if token_file is None else os.fspath(token_file)
    verdict = json.loads(
        _core.verify_json(model, replica, other, sealed, wanted, servers, token, job, deadline)
    )
    verdict["replicas"] = tuple(Verified(**of) for of in verdict["replicas"])
    verdict["different"] = tuple(verdict["different"])
    verdict["differences"] = tuple(_difference(of) for of in verdict["differences"])
    return Verdict(**verdict)


def _difference(of: dict[str, Any]) -> Difference:
    of["shape"] = tuple(of["shape"])
    of["ranges"] = tuple(_range(place) for place in of["ranges"])
    return Difference(**of)


def _range(of: dict[str, Any]) -> DifferentRange:
    of["slice"] = tuple((start, stop) for start, stop in of["slice"])
    of["readings"] = tuple(tuple(HeldBy(**held) for held in same) for same in of["readings"])
    return DifferentRange(**of)
