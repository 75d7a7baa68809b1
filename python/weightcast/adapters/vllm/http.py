"""A vLLM server as its trainer sees it, over the routes that vLLM has for reinforcement learning."""

import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any
from urllib.parse import quote, urlsplit

from ... import _core
from ..engine import EngineState

#: Seconds without an answer after which a server is asked whether it is well.
LOOK = 2.0


class HTTPEngine:
    """One vLLM server (`VLLM_SERVER_DEV_MODE=1`). Takes vLLM's own place of `HTTPVLLMWeightSyncClient`,
    and pauses and resumes the engine too.

    vLLM does not authenticate these routes: whoever reaches them can stop the engine or change its
    weights. A plain `http` address beyond this host is therefore refused, unless `insecure` says that the
    network is trusted; put a proxy with TLS before the server, and pass its `https` address and `headers`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = 300.0,
        insecure: bool = False,
        extension: bool = False,
    ) -> None:
        """`extension`: the engine was started with `WorkerExtension`, not with the weight-transfer
        interface."""
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise _core.Misuse(f"{base_url!r} is no http or https address of a vLLM server")
        if url.scheme == "http" and not insecure and not _loopback(url.hostname):
            raise _core.Misuse(
                f"{base_url}: vLLM's weight routes have no authentication, and this is not loopback; put "
                "a proxy with TLS before the server, or pass insecure=True on a network that is trusted"
            )
        self.base_url = base_url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._timeout = timeout
        self._extension = extension

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the engine join the job."""
        if self._extension:
            self._on_workers("weightcast_join", init_info)
        else:
            self._ask("POST", "init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        """Begins an update."""
        if self._extension:
            self._on_workers("weightcast_begin")
        else:
            self._ask("POST", "start_weight_update")

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Has the engine fetch a version."""
        if self._extension:
            self._on_workers("weightcast_fetch", update_info)
        else:
            self._ask("POST", "update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Has the engine install the version and stamp what it generates with it."""
        if self._extension:
            self._on_workers("weightcast_install")
            self._ask("POST", "update_weight_version", {"new_version": weight_version})
        else:
            self._ask("POST", "finish_weight_update", {"weight_version": weight_version})

    def pause(self, mode: str = "abort") -> None:
        """Stops generation: `abort` ends running requests, `wait` lets them end, `keep` freezes them."""
        self._ask("POST", f"pause?mode={quote(mode)}")

    def resume(self) -> None:
        """Goes on generating."""
        self._ask("POST", "resume")

    def states(self) -> list[EngineState]:
        """What the parameters of each worker hold."""
        said = self._on_workers("weightcast_state")["results"]
        return [EngineState(**state) for state in said if state is not None]

    def weight_version(self) -> str:
        """What the engine stamps its tokens with."""
        return str(self._ask("GET", "weight_info")["weight_version"])

    def paused(self) -> bool:
        """Whether generation is stopped."""
        return bool(self._ask("GET", "is_paused")["is_paused"])

    def _on_workers(self, method: str, *arguments: Any) -> Any:
        return self._ask("POST", "collective_rpc", {"method": method, "args": list(arguments)})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request. A server whose engine has died never answers some of them: while one
        takes long, the server is asked whether it is well."""
        asked: Future[Any] = Future()
        # Nobody waits for a request that was given up: it ends by its own timeout.
        Thread(target=_answer, args=(asked, self._send, method, path, body), daemon=True).start()
        while not asked.done():
            wait([asked], LOOK)
            if not asked.done():
                self._check_health(path)
        return asked.result()

    def _check_health(self, path: str) -> None:
        try:
            urllib.request.urlopen(f"{self.base_url}/health", timeout=LOOK).close()
        except urllib.error.HTTPError as error:
            raise _core.WeightcastError(
                f"{self.base_url}/{path}: the engine has died (/health: {error.code}); restart it"
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
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            said = error.read(4096).decode(errors="replace")
            raise _core.WeightcastError(f"{self.base_url}/{path}: {error.code}: {said}") from None
        except OSError as error:
            raise _core.WeightcastError(
                f"{self.base_url}/{path}: {error}; is the server up, with VLLM_SERVER_DEV_MODE=1?"
            ) from None


def _answer(asked: "Future[Any]", send: Callable[..., Any], *arguments: Any) -> None:
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
