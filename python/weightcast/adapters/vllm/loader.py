"""`--load-format weightcast`: an engine starts with weights of its peers, and none on disk.

    python -m vllm.entrypoints.openai.api_server --model DIRECTORY --load-format weightcast \\
        --model-loader-extra-config '{"server": "http://10.0.0.1:7117"}'

`DIRECTORY` needs the model's config, and no weights. `model_loader_extra_config` has the fields of
`weightcast.adapters.engine.Settings`.
"""

import logging
import weakref
from dataclasses import replace
from typing import Any

from torch import nn
from vllm.config import get_current_vllm_config
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from ..engine import EngineShard, Settings
from .identity import replica_of
from .model import read

log = logging.getLogger("weightcast")

#: The version that a model of this process was loaded with.
_loaded: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


def loaded_version(model: nn.Module) -> int | None:
    """The version that this loader gave a model, if it was this loader."""
    return _loaded.get(model)


class WeightcastLoader(BaseModelLoader):
    """Fetches the newest version from any replica that has it, trainer or engine, and waits for one. The
    engine is not up before all of its workers have the version whole and verified."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self._settings = Settings(**(load_config.model_loader_extra_config or {}))

    def download_model(self, model_config: Any) -> None:
        """Nothing: peers have the weights."""

    def load_weights(self, model: nn.Module, model_config: Any) -> None:
        """Fills the model's parameters, as they are before vLLM processes them."""
        # The engine does not generate yet: bytes may land in the parameters wherever they can.
        on_host = all(p.device.type == "cpu" for p in model.parameters())
        settings = replace(self._settings, landing="in_place" if on_host else "staged")
        replica = replica_of(get_current_vllm_config(), settings)

        shard = EngineShard(settings, replica, lambda catalog: read(model, catalog, **settings.reading()))
        try:
            shard.fetch("latest")
            version = shard.install()
        finally:
            shard.close()
        _loaded[model] = version
        log.info("%s shard %d starts with version %d", replica.name, replica.shard, version)
