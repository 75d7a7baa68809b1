"""An engine's HTTP routes as its trainer calls them."""

import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from ... import _core

#: Seconds without an answer after which a server is asked whether it is well.
LOOK = 2.0
#: Bytes of an answer that are read at most, and those of one that says no which an error tells.
READ, TOLD = 1 << 20, 4096
#: What a server answers whose engine is not well.
ILL = 503


class _Nowhere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the address that was given is the one that is trusted, headers with keys too."""

    def redirect_request(self, *_: Any) -> None:
        return None


#: To the server itself, through no proxy of the environment.
_straight = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Nowhere())


class Refused(_core.WeightcastError):
    """The server said no; `said` is what it answered."""

    def __init__(self, route: str, code: int, said: str) -> None:
        super().__init__(f"{route}: {code}: {said[:TOLD]}")
        self.said = said


class Gone(_core.WeightcastError):
    """No process is there that could be serving: nothing listens, or the server says that its engine has
    died."""


class Routes:
    """The routes of one server. Engines do not authenticate the routes that change their weights unless
    told to: a plain `http` address beyond this host is therefore refused, unless `insecure` says that the
    network is trusted.
    """

    def __init__(
        self,
        base_url: str,
        *,
        engine: str,
        health: str,
        hint: str,
        headers: dict[str, str] | None,
        timeout: float,
        insecure: bool,
    ) -> None:
        """`engine` is the engine's name in errors; `health` a route that a server which is well answers
        at any time; `hint` what to look at if nothing answers."""
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise _core.Misuse(f"{base_url!r} is no http or https address of {engine} server")
        if url.scheme == "http" and not insecure and not _loopback(url.hostname):
            raise _core.Misuse(
                f"{base_url}: the weight routes of {engine} server have no authentication, and this is not "
                "loopback; put a proxy with TLS before the server, or pass insecure=True on a network that "
                "is trusted"
            )
        self.base_url = base_url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._timeout, self._health, self._hint = timeout, health, hint

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request. A server whose engine has died never answers some of them: while one
        takes long, the server is asked whether it is well."""
        asked: Future[Any] = Future()
        # Nobody waits for a request that was given up: it ends by its own timeout.
        Thread(target=settle, args=(asked, self._send, method, path, body), daemon=True).start()
        while not asked.done():
            wait([asked], LOOK)
            if not asked.done():
                self._check_health(path)
        return asked.result()

    def _check_health(self, path: str) -> None:
        try:
            request = urllib.request.Request(f"{self.base_url}/{self._health}", headers=self._headers)
            _straight.open(request, timeout=LOOK).close()
        except urllib.error.HTTPError as error:
            if error.code != ILL:
                return
            raise Gone(
                f"{self.base_url}/{path}: the engine has died (/{self._health}: {error.code}); restart it"
            ) from None
        except (urllib.error.URLError, ConnectionError) as error:
            if not isinstance(getattr(error, "reason", None), TimeoutError):
                raise _core.WeightcastError(
                    f"{self.base_url}/{path}: the server has gone ({error}); restart it"
                ) from None
        except TimeoutError:
            return  # busy

    def _send(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base_url}/{path}", data, self._headers, method=method)
        try:
            with _straight.open(request, timeout=self._timeout) as answer:
                return _content(f"{self.base_url}/{path}", answer)
        except urllib.error.HTTPError as error:
            said = error.read(READ).decode(errors="replace")
            raise Refused(f"{self.base_url}/{path}", error.code, said) from None
        except OSError as error:
            refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
            kind = Gone if refused else _core.WeightcastError
            raise kind(f"{self.base_url}/{path}: {error}; {self._hint}") from None


def _content(route: str, answer: Any) -> Any:
    """JSON, or plain text of routes that answer with text."""
    said = answer.read(READ + 1)
    if len(said) > READ:
        raise _core.WeightcastError(f"{route}: an answer of more than {READ} bytes; is this the engine?")
    if answer.headers.get_content_type() == "application/json":
        return json.loads(said)
    return said.decode(errors="replace") or None


def settle(asked: "Future[Any]", send: Callable[..., Any], *arguments: Any) -> None:
    """Makes a call, and tells a future what came of it."""
    try:
        asked.set_result(send(*arguments))
    except BaseException as error:
        asked.set_exception(error)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
