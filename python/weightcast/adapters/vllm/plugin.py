"""The entry point `vllm.general_plugins`: makes `--weight-transfer-config '{"backend": "weightcast"}'` and
`--load-format weightcast` known to vLLM, in every one of its processes."""

from typing import Any

#: The backend's name in vLLM's configuration.
BACKEND = "weightcast"
_HERE = "weightcast.adapters.vllm"


def register() -> None:
    """Registers the worker's engine, the trainer's, and the model loader, each once, however often vLLM
    loads plugins."""
    from vllm.distributed.weight_transfer import factory

    _once(factory.WeightTransferEngineFactory, f"{_HERE}.worker", "WeightcastEngine")
    trainers = getattr(factory, "WeightTransferTrainerFactory", None)
    if trainers is not None:  # older vLLM: trainers call a method of the worker's class
        _once(trainers, f"{_HERE}.trainer", "WeightcastTrainer")
    _register_loader()


def _register_loader() -> None:
    from vllm.model_executor import model_loader

    if BACKEND not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        from .loader import WeightcastLoader

        model_loader.register_model_loader(BACKEND)(WeightcastLoader)


def _once(registry: Any, module: str, name: str) -> None:
    if BACKEND not in registry._registry:
        registry.register_engine(BACKEND, module, name)
