"""A vLLM server as its trainer sees it, over the routes that vLLM has for reinforcement learning."""

from typing import Any
from urllib.parse import quote

from ... import _core
from ..engine import EngineState
from ..engine.http import Refused, Routes
from .lora.client import Slot


class HTTPEngine(Routes):
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
        super().__init__(
            base_url,
            engine="a vLLM",
            health="health",
            hint="is the server up, with VLLM_SERVER_DEV_MODE=1?",
            headers=headers,
            timeout=timeout,
            insecure=insecure,
        )
        self._extension = extension

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the engine join the job. Routers know it by this address, unless `init_info` has another."""
        init_info = init_info | {"address": init_info.get("address") or self.base_url}
        if self._extension:
            self.on_workers("weightcast_join", init_info)
        else:
            self.ask("POST", "init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        """Begins an update."""
        if self._extension:
            self.on_workers("weightcast_begin")
        else:
            self.ask("POST", "start_weight_update", {})  # vLLM up to 0.24 wants a body

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Has the engine fetch a version."""
        if self._extension:
            self.on_workers("weightcast_fetch", update_info)
        else:
            self.ask("POST", "update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Has the engine install the version and stamp what it generates with it."""
        if self._extension:
            self.on_workers("weightcast_install")
            if weight_version is not None:
                self.stamp(weight_version)
        else:
            self.ask("POST", "finish_weight_update", {"weight_version": weight_version})

    def stamp(self, weight_version: str) -> None:
        """Stamps what the engine generates with a version; nothing where vLLM has no stamps (up to 0.26)."""
        try:
            self.ask("POST", "update_weight_version", {"new_version": weight_version})
        except Refused as error:
            if "Not Found" not in error.said:
                raise

    def workers(self) -> int:
        """How many workers the engine has."""
        return len(self.on_workers("weightcast_state"))

    def order(self, order: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Brings an order of a fleet's driver to all workers; see `adapters.engine.orders`."""
        return self.on_workers("weightcast_order", order)

    def performed(self, attempt: dict[str, Any], failure: str | None) -> list[dict[str, Any]]:
        """Tells all workers that the engine has taken a step, or could not."""
        return self.on_workers("weightcast_performed", attempt, failure)

    def invalidate(self) -> None:
        """Drops what the engine has computed with other weights; requests under way are computed anew.
        `pause` has dropped the caches of images by then."""
        said = self.ask("POST", "reset_prefix_cache?reset_running_requests=true&reset_external=true")
        if said is not None and not said["success"]:  # vLLM up to 0.25 does not say
            raise _core.WeightcastError(f"{self.base_url}: the caches of keys and values were not dropped")

    def release(self) -> None:
        """Has an engine that a lost trainer has left standing still go on with the whole weights that it
        holds. Other engines of its fleet may hold another version: a new trainer would bring all to one."""
        self.on_workers("weightcast_release")
        self.resume()

    def take(self, holder: str, seconds: float) -> None:
        """Keeps other trainers from exchanging weights of the engine, for so long at the most."""
        self.on_workers("weightcast_turn", "take", holder, seconds)

    def give_back(self, holder: str) -> None:
        """The exchange is over."""
        self.on_workers("weightcast_turn", "give_back", holder)

    def pause(self, mode: str = "abort") -> None:
        """Stops generation: `abort` ends running requests, `wait` lets them end, `keep` freezes them."""
        self.ask("POST", f"pause?mode={quote(mode)}")

    def resume(self) -> None:
        """Goes on generating."""
        self.ask("POST", "resume")

    def states(self) -> list[EngineState]:
        """What the parameters of each worker hold."""
        said = self.on_workers("weightcast_state")
        return [EngineState(**state) for state in said if state is not None]

    def weight_version(self) -> str:
        """What the engine stamps its tokens with."""
        return str(self.ask("GET", "weight_info")["weight_version"])

    def paused(self) -> bool:
        """Whether generation is stopped."""
        return bool(self.ask("GET", "is_paused")["is_paused"])

    def slot(self, name: str) -> Slot:
        """The slot of a LoRA adapter, by the name that requests give as their model. The server needs
        `--enable-lora`, and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`."""
        return Slot(self, name)

    def load_lora(self, name: str, path: str) -> None:
        """Has the server load an adapter in the place of the one of this name, if there is one."""
        self._lora("load", {"lora_name": name, "lora_path": path, "load_inplace": True})

    def unload_lora(self, name: str) -> None:
        """Has the server refuse requests to an adapter's name. Does nothing for one that it does not know."""
        try:
            self._lora("unload", {"lora_name": name})
        except Refused as error:
            if "cannot be found" not in error.said:
                raise

    def _lora(self, what: str, body: dict[str, Any]) -> None:
        try:
            self.ask("POST", f"v1/{what}_lora_adapter", body)
        except Refused as error:
            if "Not Found" not in error.said:
                raise
            raise _core.Misuse(
                f"{self.base_url} has no route for adapters; start the server with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            ) from None

    def on_workers(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method on all workers of the engine, and returns their answers."""
        said = self.ask("POST", "collective_rpc", {"method": method, "args": list(arguments)})
        return [] if said is None else list(said["results"])
