"""Whether live replicas hold the same, whatever their layouts, and where they do not."""

import os
from collections.abc import Sequence

from . import _core, selector
from ._core import Verdict


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
    return _core.verify(
        model,
        replica,
        other=other,
        sealed=sealed,
        version=wanted,
        server=servers,
        token_file=token,
        job=job,
        deadline=deadline,
    )
