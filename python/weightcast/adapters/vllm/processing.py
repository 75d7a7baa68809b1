"""What vLLM does to a model after loading, and how it is done again after an update.

vLLM records every layer's parameters in the form in which they are loaded, before anything is done
to them; `model_loader.reload` brings a model back to that form and processes it anew.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ... import _core
from ..recording.kept import kept

#: Names and tensors, as a model's `load_weights` takes them.
Tensors = Iterable[tuple[str, torch.Tensor]]

#: Methods that leave parameters as they were loaded.
IN_PLACE = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}
#: Backends of `UnquantizedFusedMoEMethod` that do.
IN_PLACE_EXPERTS = {"TRITON", "BATCHED_TRITON"}

#: Those that pack experts in a way that vLLM's own reload does not undo: after it, the engine
#: generates something else than when it loads the same checkpoint at its start (0.32).
NOT_RELOADED = {"CPU"}


def derived(model: nn.Module) -> dict[str, str]:
    """State that is made from parameters after loading: the module, and who makes it."""
    found = {}
    for name, module in model.named_modules():
        if _is_attention(module):
            found[name] = f"{type(module).__name__}.process_weights_after_loading"
    if hasattr(model, "process_weights_after_loading"):
        found[""] = f"{type(model).__name__}.process_weights_after_loading"
    return found


def _is_attention(module: nn.Module) -> bool:
    """Whether vLLM processes the layer once all others are."""
    from vllm.model_executor.layers import attention

    told = getattr(attention, "is_deferred_attention_layer", None)
    if told is not None:
        return bool(told(module))
    # vLLM up to 0.27.
    kinds = (attention.Attention, attention.MLAAttention, attention.MMEncoderAttention)
    return isinstance(module, kinds) and hasattr(module, "process_weights_after_loading")


def made_later(model: nn.Module) -> dict[str, str]:
    """Parameters that did not exist when the model was loaded: the name, and who made them."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
    from vllm.model_executor.model_loader.reload.meta import SKIP_TENSORS

    found = {}
    for name, module in model.named_modules():
        loaded = get_layerwise_info(module).restore_metadata[0]
        for own in module._parameters:
            if own not in loaded and own not in SKIP_TENSORS:
                found[f"{name}.{own}"] = f"made by {type(module).__name__} after loading"
    return found


def rearranged(model: nn.Module) -> dict[str, str]:
    """Modules whose parameters are not as they were loaded, or may not be, and why."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    found = {}
    for name, module in model.named_modules():
        loaded = get_layerwise_info(module).restore_metadata[0]
        for own, before in loaded.items():
            now = module._parameters.get(own)
            if now is None or _form(now) != _form(before):
                found[name] = f"{own} is {_described(now)}, was loaded as {_described(before)}"
        method = getattr(module, "quant_method", None)
        if _backend(method) in NOT_RELOADED:
            raise _core.Misuse(
                f"{name}: its experts are packed for CPUs, which vLLM's own reload does not undo; "
                "read the layout before vLLM processes the weights, or start a new engine"
            )
        if name not in found and isinstance(method, QuantizeMethodBase) and not _in_place(method):
            found[name] = f"{type(method).__name__} may rearrange it"
    return found


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, tuple(tensor.stride())


def _described(tensor: torch.Tensor | None) -> str:
    return "gone" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def _in_place(method: Any) -> bool:
    if type(method).process_weights_after_loading.__qualname__.startswith("QuantizeMethodBase."):
        return True
    return type(method).__name__ in IN_PLACE or _backend(method) in IN_PLACE_EXPERTS


def _backend(method: Any) -> str | None:
    return getattr(getattr(method, "unquantized_backend", None), "name", None)


@contextmanager
def load_form(model: nn.Module) -> Iterator[None]:
    """The model with its parameters as they are loaded, on the meta device; inside only."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
    from vllm.model_executor.model_loader.reload.meta import restore_layer_on_meta

    with kept(model):
        for module in model.modules():
            restore_layer_on_meta(module, get_layerwise_info(module))
            _unwrap_loaders(module)
        yield


def _unwrap_loaders(module: nn.Module) -> None:
    """A reload leaves wrappers around the loaders of what vLLM restores, which load nothing once it is over
    (0.32)."""
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        loader: Any = getattr(tensor, "weight_loader", None)
        while getattr(loader, "__name__", "") == "online_process_loader":
            loader = tensor.weight_loader = loader.__wrapped__


def reload(model: nn.Module, config: Any) -> Callable[[Tensors], None]:
    """Loads tensors as vLLM's `reload_weights` does: layer by layer, into the memory in use."""

    def load(tensors: Tensors) -> None:
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        with set_current_vllm_config(config), torch.no_grad():
            initialize_layerwise_reload(model)
            try:
                model.load_weights(tensors)
            finally:
                # After an error too: what vLLM keeps of a layer that is incomplete would count as the next
                # reload's own.
                finalize_layerwise_reload(model, config.model_config)
            for module in tied(model):
                module.quant_method.process_weights_after_loading(module)

    return load


def tied(model: nn.Module) -> list[nn.Module]:
    """Layers whose parameter is another's too, and was loaded there: a head that is tied to the
    embedding, say. vLLM's reload processes the other one alone, and what was packed from the parameter
    for this one stays as it was (0.32)."""
    owned: set[int] = set()
    found = []
    for module in model.modules():
        own = {id(p) for p in module._parameters.values() if p is not None}
        if own & owned and _packs_beside(module):
            found.append(module)
        owned |= own
    return found


def _packs_beside(module: nn.Module) -> bool:
    """Whether processing leaves the layer's parameter as it is, so that it can be done again."""
    return type(getattr(module, "quant_method", None)).__name__ == "UnquantizedEmbeddingMethod"


def redo(model: nn.Module, config: Any) -> Callable[[], None]:
    """Has the model make its derived state anew, in the memory that it has: CUDA graphs and
    kernels keep the addresses."""

    def again() -> None:
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(config), torch.no_grad():
            for name in derived(model):
                module = model.get_submodule(name)
                before = _tensors(module)
                if name:
                    module.process_weights_after_loading(config.model_config.dtype)
                else:
                    module.process_weights_after_loading()
                _keep_memory(module, before)

    return again


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    everything = {**vars(module), **module._buffers, **module._parameters}
    return {name: t for name, t in everything.items() if isinstance(t, torch.Tensor)}


def _keep_memory(module: nn.Module, before: dict[str, torch.Tensor]) -> None:
    """Puts what was made anew where it was before."""
    now = _tensors(module)
    for name, old in before.items():
        new = now.get(name)
        if new is not None and new is not old and _form(new) == _form(old):
            old.copy_(new)
            setattr(module, name, old)
