"""For engines that are started without the weight-transfer interface, or have another form of it:
`--worker-extension-cls weightcast.adapters.vllm.extension.WorkerExtension`.

vLLM calls these methods on every worker through `collective_rpc`; `HTTPEngine(url, extension=True)` does so
over HTTP.
"""

from typing import Any


class WorkerExtension:
    """Methods that vLLM adds to its worker class. They do what `WeightcastEngine` does."""

    vllm_config: Any
    device: Any
    model_runner: Any
    weight_transfer_engine: Any

    def weightcast_join(self, settings: dict[str, Any]) -> None:
        """Joins the job; `settings` has the fields of `weightcast.adapters.engine.Settings`."""
        from .worker import WeightcastEngine

        if not isinstance(getattr(self, "weight_transfer_engine", None), WeightcastEngine):
            self.weight_transfer_engine = WeightcastEngine(
                None, self.vllm_config, self.device, self.model_runner.model
            )
        engine = self.weight_transfer_engine
        engine.init_transfer_engine(engine.parse_init_info(settings))

    def weightcast_begin(self) -> None:
        """Begins an update."""
        self.weight_transfer_engine.start_weight_update()

    def weightcast_fetch(self, info: dict[str, Any]) -> None:
        """Fetches a version; `info` has the fields of `UpdateInfo`."""
        self.weight_transfer_engine.update_weights(info)

    def weightcast_install(self) -> None:
        """Installs what was fetched."""
        self.weight_transfer_engine.finish_weight_update()
