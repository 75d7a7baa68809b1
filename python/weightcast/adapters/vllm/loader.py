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

import torch
from torch import nn
from vllm.config import get_current_vllm_config
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from ..engine import EngineShard, Settings
from ..live import LiveLayout
from .draft import load_draft, told_beside_draft
from .identity import replica_of
from .model import read

log = logging.getLogger("weightcast")

#: The version that a model of this process was loaded with: its training run, its number.
_loaded: weakref.WeakKeyDictionary[nn.Module, tuple[int | None, int]] = weakref.WeakKeyDictionary()
#: By engine of this process: what came with its model for its draft, which vLLM loads afterwards.
_for_draft: dict[str, dict[str, torch.Tensor]] = {}


def loaded_version(model: nn.Module) -> int | None:
    """The version that this loader gave a model, if it was this loader."""
    return _loaded.get(model, (None, None))[1]


def loaded_run(model: nn.Module) -> int | None:
    """The training run of that version."""
    return _loaded.get(model, (None, None))[0]


class WeightcastLoader(BaseModelLoader):
    """Fetches the newest version from any replica that has it, trainer or engine, and waits for one. The
    engine is not up before all of its workers have the version whole and verified."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self._settings = Settings(**(load_config.model_loader_extra_config or {}))

    def download_model(self, model_config: Any) -> None:
        """Nothing: peers have the weights."""

    def load_weights(self, model: nn.Module, model_config: Any) -> None:
        """Fills the model's parameters, as they are before vLLM processes them; those of a draft with what
        has come with its model, in one version."""
        config = get_current_vllm_config()
        if model_config.runner_type == "draft":
            load_draft(model, config, self._settings, _for_draft.pop(config.instance_id, {}))
            return
        # The engine does not generate yet: bytes may land in the parameters wherever they can.
        on_host = all(p.device.type == "cpu" for p in model.parameters())
        settings = replace(self._settings, landing="in_place" if on_host else "staged")
        replica = replica_of(config, settings)
        beside, lives = told_beside_draft(config, settings), []

        def read_model(catalog: Any) -> LiveLayout:
            lives.append(read(model, catalog, **(beside or settings.reading())))
            return lives[-1]

        shard = EngineShard(settings, replica, read_model)
        try:
            shard.fetch("latest")
            version, run = shard.install(), shard.handle.epoch
        finally:
            shard.close()
        _loaded[model] = (run, version)
        if beside is not None and config.speculative_config.draft_load_config is None:
            _for_draft[config.instance_id] = lives[-1].left
        log.info("%s shard %d starts with version %d", replica.name, replica.shard, version)
