"""How samples go back: a small bounded hub that rollouts fill and trainers empty.

A rollout asks for a `ticket` before it generates, and gets one when the trainers will need another
batch: that is the back-pressure, and it keeps samples fresh, because the rollout takes the newest
version after it got its ticket. Samples older than a trainer accepts are dropped and their tickets
returned, as is the ticket of a rollout that is gone; `backlog` decides. The hub runs in the parent
process, on the loopback, and talks only to those who know the token. Children also `report` what
happened to them, for the progress lines and the table.
"""

import hmac
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any

from . import wire
from .backlog import Backlog, Batch


class SampleHub(socketserver.ThreadingTCPServer):
    """The queue, over the decisions of a `Backlog`, for which a trainer waits once that took `patience`
    seconds.

    `on_report(name, event)` is called, one at a time, for each report. Use as a context manager.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        backlog: Backlog,
        token: str,
        on_report: Callable[[str, wire.Header], None],
        patience: float = 0.0,
    ):
        super().__init__(("127.0.0.1", 0), _Connection)
        self.patience = patience
        self.token, self.on_report = token, on_report
        self.backlog = backlog
        self.finished = False
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server_address[1]

    def finish(self) -> None:
        """No more samples are needed: everyone who waits for a ticket is told to stop."""
        with self.changed:
            self.finished = True
            self.changed.notify_all()

    def ticket(self) -> int | None:
        """Waits until another batch is needed, and says which version it should have at least; None if
        none ever will be."""
        with self.changed:
            self.changed.wait_for(lambda: self.finished or self.backlog.has_room)
            if self.finished:
                return None
            return self.backlog.take_ticket()

    def give_back(self, tickets: int) -> None:
        """Tickets of a rollout that is gone."""
        with self.changed:
            self.backlog.give_back(tickets)
            self.changed.notify_all()

    def publish(self, version: int, digest: str) -> None:
        """Trainers are about to publish a version: from the first on, samples must bear its digest."""
        with self.changed:
            self.backlog.publish(version, digest)
            self.changed.notify_all()

    def put(self, batch: Batch) -> None:
        """Hands in the batch that a ticket was given for."""
        with self.changed:
            self.backlog.put(batch)
            self.changed.notify_all()

    def get(self, min_version: int) -> Batch | None:
        """Waits for a batch of at least `min_version`, dropping older ones; None if finished."""
        with self.changed:
            self.backlog.require(min_version)
            self.changed.notify_all()
            if not self.changed.wait_for(self._served, self.patience):
                self.backlog.waiting += 1
                self.changed.notify_all()
                self.changed.wait_for(self._served)
                self.backlog.waiting -= 1
            if self.finished:
                return None
            self.changed.notify_all()
            return self.backlog.get()

    def _served(self) -> bool:
        return self.finished or bool(self.backlog.batches)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks the protocol loses its connection, and nobody else theirs."""

    def __exit__(self, *args: Any) -> None:
        self.finish()
        self.shutdown()
        super().__exit__(*args)


class _Connection(socketserver.BaseRequestHandler):
    """One client: a hello with the token, then requests and replies in turn."""

    server: SampleHub

    def handle(self) -> None:
        self.request.settimeout(10)
        header, _ = wire.receive(self.request) or ({}, {})
        if not hmac.compare_digest(str(header.get("token", "")), self.server.token):
            return
        self.request.settimeout(None)
        name = str(header.get("name"))
        self.tickets = 0
        try:
            while frame := wire.receive(self.request):
                wire.send(self.request, *self._answer(name, *frame))
        finally:
            self.server.give_back(self.tickets)

    def _answer(
        self, name: str, header: wire.Header, arrays: wire.Arrays
    ) -> tuple[wire.Header, wire.Arrays]:
        hub = self.server
        match header.pop("do", None):
            case "ticket":
                floor = hub.ticket()
                self.tickets += floor is not None
                return {"floor": floor}, {}
            case "put":
                self.tickets -= 1
                hub.put(Batch(int(header["version"]), digest=str(header["digest"]), **arrays))
            case "publish":
                hub.publish(int(header["version"]), str(header["digest"]))
            case "get":
                batch = hub.get(int(header["min_version"]))
                if batch is None:
                    return {"version": None}, {}
                return _frame(batch)
            case "report":
                with hub.changed:
                    hub.on_report(name, header)
            case other:
                raise wire.WireError(f"request {other!r} is not known")
        return {}, {}


def _frame(batch: Batch) -> tuple[wire.Header, dict[str, wire.Array]]:
    """A batch as a header and arrays."""
    arrays = batch._asdict()
    return {"version": arrays.pop("version"), "digest": arrays.pop("digest")}, arrays


class Samples:
    """A child's connection to the hub; `timeout` in seconds bounds every wait."""

    def __init__(self, port: int, token: str, name: str, timeout: float):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        wire.send(self.sock, {"token": token, "name": name})

    def ticket(self) -> int | None:
        """Waits until another batch is needed, and says which version it should have at least: trainers
        would hardly take an older one. None when it is time to stop."""
        header, _ = self._ask({"do": "ticket"})
        floor: int | None = header["floor"]
        return floor

    def put(self, batch: Batch) -> None:
        """Sends a batch."""
        header, arrays = _frame(batch)
        self._ask({"do": "put"} | header, arrays)

    def publish(self, version: int, digest: str) -> None:
        """Tells the digest of a version that is about to be published."""
        self._ask({"do": "publish", "version": version, "digest": digest})

    def get(self, min_version: int) -> Batch:
        """Waits for a batch of at least `min_version`; its digest is known to be that of its version."""
        header, arrays = self._ask({"do": "get", "min_version": min_version})
        if header["version"] is None:
            raise wire.WireError("the hub gives no more samples")
        return Batch(header["version"], digest=header["digest"], **arrays)

    def report(self, **event: Any) -> None:
        """Tells the parent what happened."""
        self._ask({"do": "report"} | event)

    def close(self) -> None:
        """Closes the connection."""
        self.sock.close()

    def _ask(
        self, header: wire.Header, arrays: wire.Arrays | None = None
    ) -> tuple[wire.Header, dict[str, wire.Array]]:
        try:
            wire.send(self.sock, header, arrays)
            frame = wire.receive(self.sock)
        except TimeoutError:
            what, seconds = header["do"], self.sock.gettimeout()
            raise wire.WireError(f"no answer to {what!r} in {seconds} s; see --timeout") from None
        if frame is None:
            raise wire.WireError("the hub closed the connection")
        return frame
