"""What lies between a trainer and its engine, and loses answers."""

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .server import SOON


class Wire:
    """Hands requests over to a server; the server gets all of them, the trainer not all of the answers."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._losing: str | None = None
        self._cut = False
        #: How many answers were lost.
        self.lost = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def lose(self, what: str, *, cut: bool = False) -> None:
        """Loses the next answer to a request that has this in its path or body, and with `cut` all answers
        from then on."""
        self._losing, self._cut, self.lost = what, cut, 0

    def mend(self) -> None:
        """Loses nothing any more."""
        self._losing, self._cut = None, False

    def is_lost(self, request: str) -> bool:
        with self._lock:
            losing = self._losing is not None and (self._losing in request or (self._cut and self.lost > 0))
            self.lost += losing
            if losing and not self._cut:
                self._losing = None
            return losing

    def ask(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._to + path, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SOON) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get_content_type(), error.read()

    def kill(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(wire: Wire) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, kind, said = wire.ask(self.command, self.path, body)
            if wire.is_lost(f"{self.path} {body.decode()}"):
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = _pass_on

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    return Handler
