"""What of a PEFT model is not merged: the base weights alone are not what the model computes with."""

from collections.abc import Iterator
from typing import Any

from torch import nn


def tuned(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The layers that PEFT has put in place of those of the base model, whatever the way of tuning."""
    for path, module in model.named_modules():
        if hasattr(module, "base_layer") and hasattr(module, "merged_adapters"):
            yield path, module


def adapters_of(layer: Any) -> list[str]:
    """The adapters that a layer computes with, in their order."""
    if layer.disable_adapters:
        return []
    known = {name for kept in layer.adapter_layer_names for name in getattr(layer, kept, {})}
    return [adapter for adapter in layer.active_adapters if adapter in known]


def why_unmerged(model: nn.Module) -> str | None:
    """Which layers are not merged, and what to do about it."""
    left = [path for path, layer in tuned(model) if set(adapters_of(layer)) - set(layer.merged_adapters)]
    if not left:
        return None
    return (
        f"adapters of {len(left)} layers ({left[0]}, ...) are not merged into the weights to be published; "
        "call merge_adapter() before publish and unmerge_adapter() after unpublish, publish "
        "weightcast.adapters.peft.merged(model), which leaves the model as it is, or the adapter alone "
        "(weightcast.adapters.vllm.Adapter)"
    )
