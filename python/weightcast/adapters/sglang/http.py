"""An SGLang server as its trainer sees it, over the routes that SGLang has for reinforcement learning."""

import json
import logging
import secrets
from typing import Any, NoReturn
from urllib.parse import urlsplit

from ... import _core
from ..engine import EngineState
from ..engine.http import Refused, Routes
from .request import LOADER, payload

log = logging.getLogger("weightcast")

#: Seconds that a server may take to empty its cache, once its requests have ended.
FLUSHING = 30
#: How SGLang answers for a loader that returned, until `watch_updates` answers in its place.
UNWATCHED = "Success"


class SGLangEngine(Routes):
    """One SGLang server, started with `--custom-weight-loader weightcast.adapters.sglang.load`.

    SGLang does not authenticate these routes unless it was started with `--admin-api-key`; then pass
    `headers={"Authorization": "Bearer ..."}`. A plain `http` address beyond this host is refused, unless
    `insecure` says that the network is trusted; put a proxy with TLS before the server.

    SGLang makes a request about weights wait until no request generates, unless generation is paused.
    Whatever is asked here is therefore asked in a short pause of its own (`in_place`: requests freeze
    and go on), but for what is asked between `pause` and `resume`.
    """

    #: Seconds between two questions how far a fetch is: each is a pause.
    looks = (0.05, 1.0)

    def __init__(
        self,
        base_url: str,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = 300.0,
        insecure: bool = False,
    ) -> None:
        super().__init__(
            base_url,
            engine="an SGLang",
            # SGLang's own /health generates a token, and says that a paused engine is ill.
            health="model_info",
            hint="is the server up?",
            headers=headers,
            timeout=timeout,
            insecure=insecure,
        )
        self._instance = f"{urlsplit(base_url).netloc}-{secrets.token_hex(4)}"
        self._ranks: int | None = None
        #: How generation was paused by `pause`, until `resume`.
        self._paused: str | None = None

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the engine join the job; `init_info` has the fields of `adapters.engine.Settings`."""
        self._ranks = self._tensor_parallel()
        # Routers know it by this address.
        settings = init_info | {"address": init_info.get("address") or self.base_url}
        self._tell("watch")
        self._tell("join", settings=settings, instance=self._instance, life=secrets.randbits(62))

    def start_weight_update(self) -> None:
        """Begins an update."""
        self._tell("begin")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Has the engine fetch a version: `version`, `wait`, `deadline`, `allow_rollback`. Nothing has to
        be done to `abandon` an update: SGLang's own session ends with every request."""
        if not update_info.get("abandon"):
            self._tell("fetch", **update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Has the engine install the version, drop the cache of the old one, and stamp what it generates
        with the version. Paused `in_place`, the requests under way and the cache keep what the old version
        computed."""
        self._tell("install")
        if self._paused in ("abort", "retract"):
            self.invalidate()
        if weight_version is not None:
            self.stamp(weight_version)

    def workers(self) -> int:
        """How many ranks the engine has."""
        return self._joined_ranks()

    def order(self, order: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Brings an order of a fleet's driver to all ranks; see `adapters.engine.orders`."""
        try:
            return [rank["said"] for rank in self._tell("order", order=order)]
        except StartedAgain:
            return [None] * self._joined_ranks()

    def performed(self, attempt: dict[str, Any], failure: str | None) -> list[dict[str, Any]]:
        """Tells all ranks that the engine has taken a step, or could not."""
        return [rank["said"] for rank in self._tell("performed", attempt=attempt, failure=failure)]

    def invalidate(self) -> None:
        """Drops what the engine has computed with other weights."""
        # After `abort` the last requests may still be ending. After `retract` the queue is not empty: SGLang,
        # asked to wait until it is, would wait in vain.
        waiting = f"?timeout={FLUSHING}" if self._paused == "abort" else ""
        self.ask("POST", f"flush_cache{waiting}")

    def stamp(self, weight_version: str) -> None:
        """Stamps what the engine generates with a version."""
        stamp = {"new_version": weight_version, "abort_all_requests": False}
        self.ask("POST", "update_weight_version", stamp)

    def release(self) -> None:
        """Has an engine that an interrupted update has left go on with the whole weights that it holds, where
        no trainer will come."""
        self._ranks = self._ranks or self._tensor_parallel()
        self._tell("release")
        self.resume()

    def take(self, holder: str, seconds: float) -> None:
        """Nothing: nobody else exchanges weights of SGLang's engines."""

    def give_back(self, holder: str) -> None:
        """Nothing."""

    def paused(self) -> bool:
        """Whether generation was stopped by `pause`, and not resumed. SGLang does not say whether somebody
        else has done so."""
        return self._paused is not None

    def pause(self, mode: str = "abort") -> None:
        """Stops generation: `abort` ends running requests, `retract` takes them back into the queue to be
        computed anew, `in_place` freezes them."""
        if mode == "abort":
            # SGLang waits for aborted requests to end, which those that are frozen by now never do.
            self.ask("POST", "pause_generation", {"mode": "retract"})
        self.ask("POST", "pause_generation", {"mode": mode})
        self._paused = mode

    def resume(self) -> None:
        """Goes on generating."""
        self.ask("POST", "continue_generation", {"torch_empty_cache": False})
        self._paused = None

    def states(self) -> list[EngineState]:
        """What the parameters of each rank hold."""
        return _states(self._tell("state"))

    def leave(self) -> None:
        """Has the engine leave the job. Its parameters stay as they are."""
        self._tell("leave")

    def weight_version(self) -> str:
        """What the engine stamps its tokens with."""
        return str(self.ask("GET", "model_info")["weight_version"])

    def _tensor_parallel(self) -> int:
        """How many ranks there are to ask. A server without the loader is refused here: SGLang ends an
        engine that is asked for a loader it does not know."""
        info = self.ask("GET", "server_info")
        if LOADER not in (info.get("custom_weight_loader") or []):
            raise _core.Misuse(f"{self.base_url}: start the server with --custom-weight-loader {LOADER}")
        return int(info["tp_size"])

    def _joined_ranks(self) -> int:
        if self._ranks is None:
            raise _core.Misuse(f"{self.base_url}: call init_weight_transfer_engine first")
        return self._ranks

    def _tell(self, do: str, **named: Any) -> list[dict[str, Any]]:
        """Asks all ranks for their reports, and has the engine generate on afterwards, unless it was paused
        before, or a rank may not serve."""
        self._joined_ranks()
        if self._paused is not None:
            return self._in_session(do, named)
        self.ask("POST", "pause_generation", {"mode": "in_place"})
        try:
            ranks = self._in_session(do, named)
        except Declined as error:
            if _serve(error.ranks):
                self.resume()
            raise
        except Exception:
            log.warning("%s: nobody knows what the engine holds: paused until an update", self.base_url)
            raise
        if _serve(ranks):
            self.resume()
        return ranks

    def _in_session(self, do: str, named: dict[str, Any]) -> list[dict[str, Any]]:
        self._open_session()
        try:
            return self._load(do, named)
        finally:
            self.ask("POST", "end_weight_update", {})

    def _open_session(self) -> None:
        # A draft model's weights stay as they are: see `refuse`.
        asked = {"selector": "target"}
        try:
            self.ask("POST", "begin_weight_update", asked)
        except Refused:
            # A lost trainer left one open.
            self.ask("POST", "end_weight_update", {})
            self.ask("POST", "begin_weight_update", asked)

    def _load(self, do: str, named: dict[str, Any]) -> list[dict[str, Any]]:
        body = {
            "serialized_named_tensors": [payload(do, **named)] * self._joined_ranks(),
            "load_format": LOADER,
            "flush_cache": False,
            "selector": "target",
        }
        try:
            said = self.ask("POST", "update_weights_from_tensor", body)
        except Refused as refused:
            self._decline(do, refused)
        if said["message"] != UNWATCHED:
            return _ranks(said["message"])
        # The first call of this process: its parameters are the engine's own, and nobody has paused it.
        self._paused = None
        if do != "watch":
            raise StartedAgain(f"{self.base_url}: the engine was started again; have it join the job", [])
        return []

    def _decline(self, do: str, refused: Refused) -> NoReturn:
        try:
            ranks = _ranks(json.loads(refused.said)["message"])
        except (ValueError, KeyError, TypeError):
            raise refused from None
        told = "; ".join(f"rank {n}: {r['error']}" for n, r in enumerate(ranks) if r["error"] is not None)
        raise Declined(f"{self.base_url}: {do}: {told}", ranks) from None


class Declined(_core.WeightcastError):
    """Ranks of an engine did not do what they were asked; `ranks` are their reports."""

    def __init__(self, told: str, ranks: list[dict[str, Any]]) -> None:
        super().__init__(told)
        self.ranks = ranks


class StartedAgain(Declined):
    """The engine is another process than the one that has joined the job."""


def _ranks(message: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(message)["ranks"]
    return found


def _states(ranks: list[dict[str, Any]]) -> list[EngineState]:
    return [EngineState(**rank["state"]) for rank in ranks if rank["state"] is not None]


def _serve(ranks: list[dict[str, Any]]) -> bool:
    return all(rank["serves"] for rank in ranks)
