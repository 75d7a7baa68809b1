"""The reference server inside a process, and what a server knows."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _core, logs, spans
from .arguments import counted


class Server:
    """A running reference server; stops when it is closed, or with its process."""

    def __init__(self, core: _core.Server) -> None:
        self._core = core

    @property
    def address(self) -> str:
        """What clients connect to: `WEIGHTCAST_SERVER`, or `open(server=...)`."""
        return self._core.address

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served: `http://127.0.0.1:9464/metrics`, `unix:/run/metrics.sock`. None if
        they are not."""
        return self._core.metrics_address

    @property
    def token_file(self) -> Path | None:
        """The file with the token that clients must show: `WEIGHTCAST_TOKEN_FILE`, or
        `open(token_file=...)`. Those of this user on this host look there by themselves, unless the
        server was given a file. None if it asks for no token."""
        return self._core.token_file

    def __repr__(self) -> str:
        file = f" WEIGHTCAST_TOKEN_FILE={self.token_file}" if self.token_file else ""
        return f"<weightcast.Server, clients: WEIGHTCAST_SERVER={self.address}{file}>"

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
    host_fanout: int = 8,
    stripes: int = 8,
    index: int = 0,
    metrics: str | None = None,
    trace: str | os.PathLike[str] | None = None,
    otlp: str | None = None,
    record_dir: str | os.PathLike[str] | None = None,
) -> Server:
    """Starts a reference server on a thread of this process.

    `address` is `IP:PORT` (port 0: any) or `unix:/PATH`. Clients must show the token in `token_file`.
    Without one, a server on loopback asks for a token that only this user can read, and that this user's
    handles on this host find by themselves (`Server.token_file`); beyond loopback it is an error.
    `insecure=True` asks for none. A client that is silent for `lease` seconds loses its place;
    `unpublish` waits up to `drain_deadline` seconds for readers. A replica serves `fanout` readers on
    other hosts at a time, and `host_fanout` on its own once it holds the version: no link is used there.
    Where several replicas of one layout hold a version and have nothing else to do, one reader draws from
    up to `stripes` of them, from each as much as it gives. `index` is this server's place in its clients'
    list, where there are backups. `metrics` is an address like the first, where the server answers
    Prometheus under the path `/metrics`; beyond loopback scrapers show the token. `trace` is a file to
    which this process adds the spans of groups' calls, and `otlp` a collector to which it sends these
    (`open`). Recordings go into `record_dir`, by default into a directory of this user (`Handle.record`).
    """
    logs.receive()
    spans.to_file(trace)
    token = None if token_file is None else os.fspath(token_file)
    return Server(
        _core.serve(
            address,
            token_file=token,
            insecure=insecure,
            lease=lease,
            drain_deadline=drain_deadline,
            fanout=counted("fanout", fanout),
            host_fanout=counted("host_fanout", host_fanout),
            stripes=counted("stripes", stripes),
            index=counted("index", index),
            metrics=metrics,
            trace=None if trace is None else os.fspath(trace),
            otlp=otlp,
            record_dir=None if record_dir is None else os.fspath(record_dir),
        )
    )


def status(
    server: str | None = None,
    *,
    token_file: str | os.PathLike[str] | None = None,
    job: str | None = None,
) -> dict[str, Any]:
    """Models, versions, replicas, shards, who reads from whom: what `weightcast status` prints.

    Without a server, here and in `WEIGHTCAST_SERVER`, it is the one that the processes of the job
    have started on this host; `job` is found as in `open`."""
    token = None if token_file is None else os.fspath(token_file)
    return _core.status(server, token, job)


def engines(
    model: str,
    *,
    server: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    job: str | None = None,
) -> list[_core.RoutingLease]:
    """The live engines that serve a model, for a router: requests may be sent to those that are `admitted`,
    which serve the fleet's version. `left_s` says for how long; ask again before. What `weightcast engines`
    prints.

    The server is found as in `status`."""
    token = None if token_file is None else os.fspath(token_file)
    return _core.engines(model, server, token, job)


def why(
    replica: str,
    *,
    model: str | None = None,
    server: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    job: str | None = None,
) -> _core.Why:
    """Why a replica waits: for what, who holds it up, what ends the wait. `str()` of the answer is the
    sentence that `weightcast why` prints; a call that runs out of time raises `Timeout` with the same.

    `model` is needed only where replicas of several models have the name. The server is found as in
    `status`."""
    token = None if token_file is None else os.fspath(token_file)
    return _core.why(replica, model, server, token, job)
