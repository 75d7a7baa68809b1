"""The reference server inside a process, and what a server knows."""

import json
import os
from types import TracebackType
from typing import Any

from . import _core


class Server:
    """A running reference server; stops when it is closed, or with its process."""

    def __init__(self, core: _core.Server) -> None:
        self._core = core

    @property
    def address(self) -> str:
        """What clients connect to: `WEIGHTCAST_SERVER`, or `open(server=...)`."""
        return self._core.address

    def close(self) -> None:
        """Stops it."""
        self._core.stop()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve(
    address: str = "127.0.0.1:0",
    *,
    token_file: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    lease: float = 5.0,
    drain_deadline: float = 30.0,
    fanout: int = 1,
    stripes: int = 1,
    index: int = 0,
) -> Server:
    """Starts a reference server on a thread of this process.

    `address` is `IP:PORT` (port 0: any) or `unix:/PATH`. Beyond loopback it needs a token file, or
    `insecure=True`. A client that is silent for `lease` seconds loses its place; `unpublish` waits
    up to `drain_deadline` seconds for readers; a replica serves `fanout` readers at a time. Where
    several replicas of one layout hold a version and have nothing else to do, one reader draws
    different ranges from up to `stripes` of them.
    `index` is this server's place in its clients' list, where there are backups.
    """
    token = None if token_file is None else os.fspath(token_file)
    return Server(
        _core.serve(address, token, insecure, lease, drain_deadline, fanout, stripes, index)
    )


def status(
    server: str | None = None, *, token_file: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Models, versions, replicas, shards, who reads from whom: what `weightcast status` prints."""
    token = None if token_file is None else os.fspath(token_file)
    return json.loads(_core.status_json(server, token))
