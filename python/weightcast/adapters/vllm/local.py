"""vLLM's `LLM` of this process as its trainer sees it."""

import zlib
from typing import Any

from .lora.client import Slot


class LocalEngine:
    """An engine that this program drives itself: it generates nothing while it is updated, and has no need
    to be paused."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._paths: dict[str, str] = {}

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the engine join the job."""
        self._llm.init_weight_transfer_engine({"init_info": init_info})

    def start_weight_update(self) -> None:
        """Begins an update."""
        self._llm.start_weight_update()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Has the engine fetch a version."""
        self._llm.update_weights({"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Has the engine install the version, and drop what it had computed with the former one."""
        self._llm.finish_weight_update()
        if weight_version is not None:
            self.stamp(weight_version)
        self._llm.reset_prefix_cache()

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
        """Drops what the engine has computed with other weights."""
        self._llm.reset_prefix_cache()

    def stamp(self, weight_version: str) -> None:
        """Has the engine say which version it holds; nothing where vLLM has no stamps (up to 0.26)."""
        stamp = getattr(self._llm, "update_weight_version", None)
        if stamp is not None:
            stamp(weight_version)

    def release(self) -> None:
        """Has an engine that an interrupted update has left go on with the whole weights that it holds."""
        self.on_workers("weightcast_release")

    def take(self, holder: str, seconds: float) -> None:
        """Nothing: this program makes one update at a time."""

    def give_back(self, holder: str) -> None:
        """Nothing."""

    def pause(self, mode: str = "abort") -> None:
        """Nothing: `LLM` generates while its caller waits."""

    def resume(self) -> None:
        """Nothing."""

    def paused(self) -> bool:
        """Never."""
        return False

    def slot(self, name: str) -> Slot:
        """The slot of an adapter."""
        return Slot(self, name)

    def lora_request(self, name: str) -> Any:
        """What `LLM.generate` takes as `lora_request`: the version of an adapter that was sent last."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(name, number_of(name), self._paths[name])

    def on_workers(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method on all workers, and returns their answers."""
        return list(self._llm.collective_rpc(method, args=arguments))

    def load_lora(self, name: str, path: str) -> None:
        """Has the workers load a version of an adapter."""
        former = self._paths.get(name)
        self._paths[name] = path
        try:
            self._llm.llm_engine.add_lora(self.lora_request(name))
        except BaseException:
            self._paths.pop(name)
            if former is not None:
                self._paths[name] = former
            raise
        self._llm.reset_prefix_cache()  # whose keys are paths: a `lora_request` that was kept has the old one

    def unload_lora(self, name: str) -> None:
        """Forgets an adapter."""
        self._paths.pop(name, None)
        self._llm.reset_prefix_cache()


def number_of(name: str) -> int:
    """vLLM's number of an adapter: apart from those that a program counts up for adapters of its own, and
    within the int32 that vLLM's GPU workers keep it in."""
    return 1 << 30 | zlib.crc32(name.encode()) & (1 << 30) - 1
