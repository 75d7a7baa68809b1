"""What merging the adapters of a PEFT model makes, published while the model stays as it is.

`merge_adapter` changes the base weights in place, and `unmerge_adapter` subtracts what was added: both round,
so the weights that training goes on with drift. Here the sums are made beside the model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ... import _core
from .names import BaseNames, is_peft
from .unmerged import adapters_of, tuned

if TYPE_CHECKING:
    from ...torch import Gathered, Recipe


def merged(model: nn.Module, recipes: Sequence["Recipe"] = (), **options: Any) -> "Gathered":
    """A PEFT model with its active LoRA adapters merged, as the source of a trainer: under the names of the
    base model's checkpoint, to the bit what `merge_adapter` makes. The model itself stays as it is.

    Sums are made by one rank each, in host memory (`weightcast.torch.gathered`, whose `options` these are);
    the other weights of the base model are published in place. `recipes` are further ones, by the names of
    the PEFT model. All ranks call it."""
    from ...torch import gathered

    inner = model.module if isinstance(model, DistributedDataParallel) else model
    if not is_peft(inner):
        raise _core.Misuse(f"{type(inner).__name__} is no model of PEFT; publish it as it is")
    names = BaseNames(inner, options.pop("names", None))
    owned = {id(tensor): name for name, tensor in inner.named_parameters()}
    made = [_recipe(path, layer, names, owned) for path, layer in tuned(inner) if adapters_of(layer)]
    return gathered(inner, [*made, *recipes], names=names, **options)


def _recipe(path: str, layer: Any, names: BaseNames, owned: dict[int, str]) -> "Recipe":
    from ...torch import recipe

    adapters = adapters_of(layer)
    _refuse(path, layer, adapters)
    inputs = [layer.get_base_layer().weight]
    for adapter in adapters:
        inputs += [layer.lora_A[adapter].weight, layer.lora_B[adapter].weight]
    listed = [owned[id(tensor)] for tensor in inputs]
    scales = [layer.scaling[adapter] for adapter in adapters]

    def make(weight: torch.Tensor, *halves: torch.Tensor) -> torch.Tensor:
        if layer.merged_adapters:
            raise _core.Misuse(f"{path}: adapters are merged already; unmerge_adapter(), or they count twice")
        for scale, a, b in zip(scales, halves[::2], halves[1::2], strict=True):
            weight = torch.add(weight, _delta(a, b, scale, layer.fan_in_fan_out)).to(weight.dtype)
        return weight

    output = names.published(listed[0])
    if not isinstance(output, str):
        raise _core.Misuse(f"{path}: an adapter of a stack of experts; merge it by hand (merge_adapter)")
    return recipe(output, listed, make)


def _delta(a: torch.Tensor, b: torch.Tensor, scale: float, turned: bool) -> torch.Tensor:
    """As peft's `get_delta_weight`: on a CPU halves are multiplied as F32."""
    dtype = b.dtype
    if b.device.type == "cpu" and dtype in (torch.float16, torch.bfloat16):
        a, b = a.float(), b.float()
    product = b @ a
    return ((product.T if turned else product) * scale).to(dtype)


def _refuse(path: str, layer: Any, adapters: Sequence[str]) -> None:
    """Refuses whatever is merged in another way than by adding a product to a matrix."""
    what = None
    if not all(adapter in getattr(layer, "lora_A", {}) for adapter in adapters):
        what = f"is tuned as {type(layer).__name__}, and not by LoRA of a linear layer"
    elif layer.get_base_layer().weight.ndim != 2:
        what = "is no matrix"
    elif any(adapter in layer.lora_variant for adapter in adapters):
        what = "has a variant of LoRA (such as DoRA)"
    elif any(layer.lora_bias[adapter] for adapter in adapters):
        what = "has an adapter with a bias"
    if what is not None:
        raise _core.Misuse(
            f"{path} {what}, which weightcast does not merge; call merge_adapter() before publish and "
            "unmerge_adapter() after unpublish, with the layout of the model itself"
        )
