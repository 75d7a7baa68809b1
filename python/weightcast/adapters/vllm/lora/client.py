"""A slot of an engine as its trainer sees it: the engine follows an adapter by name."""

import secrets
from typing import Any, Protocol

from ...engine import EngineState
from .paths import AdapterPath

#: Seconds that unloading keeps trainers waiting at the most.
UNLOADING = 60.0


class TakesAdapters(Protocol):
    """What a slot asks of its engine: `HTTPEngine` and `LocalEngine` have it."""

    def on_workers(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method on all workers of the engine, and returns their answers."""

    def load_lora(self, name: str, path: str) -> None:
        """Has vLLM load an adapter, and answer requests to its name with it."""

    def unload_lora(self, name: str) -> None:
        """Has vLLM refuse requests to an adapter's name. Does nothing for one that it does not know."""

    def pause(self, mode: str = "abort") -> None:
        """Stops generation."""

    def resume(self) -> None:
        """Goes on generating."""

    def paused(self) -> bool:
        """Whether generation is stopped."""

    def take(self, holder: str, seconds: float) -> None:
        """Keeps others from exchanging weights of the engine."""

    def give_back(self, holder: str) -> None:
        """The exchange is over."""


class Slot:
    """The slot `name` of an engine. Has the methods by which a trainer updates a whole engine, and they
    concern this adapter alone; but `pause` stops all requests of the engine for the moment of the install."""

    def __init__(self, engine: TakesAdapters, name: str) -> None:
        self._engine, self._name = engine, name
        self._run = secrets.token_hex(4)
        self.base_url = f"{getattr(engine, 'base_url', type(engine).__name__)}, adapter {name}"

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the engine join the adapter's job."""
        self._step("join", init_info)

    def start_weight_update(self) -> None:
        """Begins an update of the adapter."""
        self._step("begin")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Has the engine fetch a version of the adapter, or give up to update it."""
        if not update_info.get("abandon"):
            self._step("fetch", update_info)

    def finish_weight_update(self, weight_version: str) -> None:
        """Has the engine put the fetched version in the place of the former one."""
        path = AdapterPath(self._name, self._run, int(weight_version))
        self._engine.load_lora(self._name, str(path))

    def states(self) -> list[EngineState]:
        """What each worker holds of the adapter."""
        said = self._engine.on_workers("weightcast_adapter", "state", self._name, {})
        return [EngineState(**state) for state in said]

    def pause(self, mode: str = "abort") -> None:
        """Stops generation."""
        self._engine.pause(mode)

    def resume(self) -> None:
        """Goes on generating, unless the base is no whole version: an update of the base ends that."""
        said = self._engine.on_workers("weightcast_state")
        if all(state is None or state["incomplete"] is None for state in said):
            self._engine.resume()

    def take(self, holder: str, seconds: float) -> None:
        """Keeps other trainers from exchanging weights of the engine, for so long at the most."""
        self._engine.take(holder, seconds)

    def give_back(self, holder: str) -> None:
        """The exchange is over."""
        self._engine.give_back(holder)

    def unload(self) -> None:
        """Takes the adapter out of the engine, whose requests are aborted for that: before the engine's base
        goes to another version, say. May be called again, whatever failed. An engine that is paused already
        stays so; of the adapter's requests that it keeps, the base alone answers the rest."""
        # First of all no new requests: what comes while the engine is paused would run after it.
        self._engine.unload_lora(self._name)
        if self._engine.paused():
            self._step("drop")
        else:
            self._drop_paused(f"unload of {self._name}")

    def _drop_paused(self, holder: str) -> None:
        self.take(holder, UNLOADING)
        try:
            self.pause("abort")
            self._step("drop")
        finally:
            self.resume()
            self.give_back(holder)

    def _step(self, step: str, info: dict[str, Any] | None = None) -> None:
        self._engine.on_workers("weightcast_adapter", step, self._name, info or {})
