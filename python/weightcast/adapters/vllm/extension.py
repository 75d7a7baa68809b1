"""For engines that are started without the weight-transfer interface, or have another form of it:
`--worker-extension-cls weightcast.adapters.vllm.extension.WorkerExtension`.

vLLM calls these methods on every worker through `collective_rpc`; `HTTPEngine(url, extension=True)` does so
over HTTP.
"""

from typing import Any

from ... import _core
from .agreed import agreed


class WorkerExtension:
    """Methods that vLLM adds to its worker class. They do what `WeightcastEngine` does."""

    vllm_config: Any
    device: Any
    model_runner: Any
    weight_transfer_engine: Any

    def weightcast_join(self, settings: dict[str, Any]) -> None:
        """Joins the job; `settings` has the fields of `weightcast.adapters.engine.Settings`."""
        from .forms import made_of
        from .serving import join
        from .worker import WeightcastEngine

        engine = getattr(self, "weight_transfer_engine", None)
        if engine is None:
            engine = WeightcastEngine(*made_of(self))
            self.weight_transfer_engine = engine
        elif not isinstance(engine, WeightcastEngine):
            raise _core.Misuse(
                f"this engine was started with another weight-transfer backend ({type(engine).__name__}); "
                "start it without one"
            )
        join(self, lambda: engine.init_transfer_engine(engine.parse_init_info(settings)))

    def weightcast_order(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """An order of a fleet's driver came in; None before the worker has joined."""
        from .serving import order as obey

        return obey(self, order) if getattr(self, "weight_transfer_engine", None) is not None else None

    def weightcast_begin(self) -> None:
        """Begins an update."""
        agreed(self, "begin", self.weight_transfer_engine.start_weight_update)

    def weightcast_fetch(self, info: dict[str, Any]) -> None:
        """Fetches a version; `info` has the fields of `UpdateInfo`."""
        agreed(self, "fetch", lambda: self.weight_transfer_engine.update_weights(info))

    def weightcast_install(self) -> None:
        """Installs what was fetched."""
        agreed(self, "finish", self.weight_transfer_engine.finish_weight_update)
