"""What a trainer publishes of a LoRA adapter: a small model of its own that says everything about itself.

Its tensors have the names that peft saves them under. Two more lie beside them: the adapter's
configuration, and the version of the base model that the adapter is trained on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from ... import _core
from ...layout import Layout
from ...names import NameMap
from ..catalog import Catalog, catalog_of
from .sources import InPlace

#: Published names of what lies beside the tensors: JSON in UTF-8, and one integer.
CONFIG, BASE = "weightcast.adapter_config", "weightcast.base_version"
#: The base version of an adapter whose base are the weights that engines load by themselves.
LOADED = -1


class Adapter:
    """A LoRA adapter as the `source` of a trainer: the one of a peft model that has this `name` there.

    `base` is the version of the base model, in that model's own job, that the adapter is trained on;
    None for weights that engines load by themselves. An engine whose base is another one refuses the
    adapter. Where the base changes, set `base` before the adapter is sent again.
    """

    def __init__(self, model: nn.Module, *, base: int | None = None, name: str = "default") -> None:
        self.model, self.base, self.name = model, base, name

    def config(self) -> dict[str, Any]:
        """What peft writes into `adapter_config.json`."""
        known = getattr(self.model, "peft_config", {})
        if self.name not in known:
            raise _core.Misuse(
                f"the model has no adapter {self.name!r}, only {sorted(known)}; make one with "
                "peft.get_peft_model, or give its name"
            )
        found: dict[str, Any] = json.loads(json.dumps(known[self.name].to_dict(), default=_plain))
        return found

    def saved_name(self, name: str) -> str | None:
        """The name under which peft saves a parameter of the model; None for one that is not of this
        adapter."""
        parts = name.split(".")
        for at, (kind, adapter) in enumerate(pairwise(parts)):
            if kind.startswith("lora_") and adapter == self.name:
                return ".".join([*parts[: at + 1], *parts[at + 2 :]])
        return None

    def tensors(self) -> dict[str, torch.Tensor]:
        """The adapter's parameters, by the names under which peft saves them."""
        names = NameMap()
        found: dict[str, torch.Tensor] = {}
        for name, parameter in self.model.named_parameters():
            known = str(names.published(name))
            saved = self.saved_name(known)
            if saved is not None:
                found[saved] = parameter
            elif parameter.requires_grad and not _of_another(known):
                raise _core.Misuse(
                    f"{name} is trained, and is no part of the LoRA adapter: engines would go on with "
                    "the value that they loaded. Freeze it, or publish the whole model"
                )
        if not found:
            raise _core.Misuse(f"the adapter {self.name!r} has no tensors; which target_modules has it?")
        return found


class AdapterInPlace(InPlace):
    """An adapter's own tensors, published where they lie."""

    def __init__(self, adapter: Adapter, rank: int) -> None:
        super().__init__(adapter.model, rank)
        self._adapter = adapter
        self._beside: dict[str, np.ndarray] = {
            CONFIG: np.frombuffer(json.dumps(adapter.config()).encode(), np.uint8).copy(),
            BASE: np.array([LOADED], np.int64),
        }

    def catalog(self) -> Catalog:
        """What will be published."""
        tensors = {name: (t.shape, t.dtype) for name, t in self._adapter.tensors().items()}
        return catalog_of({**tensors, **{n: (a.shape, a.dtype.name) for n, a in self._beside.items()}})

    def layout(self) -> Layout:
        """The tensors, where they lie, and what lies beside them."""
        from ... import torch as wct

        self._adapter.tensors()
        listed = wct.layout(
            self._module, names=NameMap(), rename=self._adapter.saved_name, buffers=False
        )
        if self.replica("trainer").shard == 0:  # ranks that differ publish one thing
            for name, array in self._beside.items():
                listed.add(array, name)
        return listed

    def refresh(self) -> None:
        """Notes the base version: the rest is what the optimizer changes."""
        base = self._adapter.base
        self._beside[BASE][0] = LOADED if base is None else base


@dataclass(frozen=True)
class Carried:
    """An adapter as it has arrived."""

    #: The version of its base model; None for weights that the engine loaded by itself.
    base: int | None
    #: What peft writes into `adapter_config.json`.
    config: dict[str, Any]
    #: By the names under which peft saves them.
    tensors: dict[str, torch.Tensor]


def carried(arrived: Mapping[str, torch.Tensor]) -> Carried:
    """Copies what has arrived."""
    tensors = {name: tensor.clone() for name, tensor in arrived.items()}
    config, base = tensors.pop(CONFIG), int(tensors.pop(BASE).item())
    return Carried(None if base == LOADED else base, json.loads(bytes(config.tolist())), tensors)


def memory_for(catalog: Catalog) -> dict[str, torch.Tensor]:
    """Host memory for an adapter that is published like this. Raises `LayoutMismatch` for what is none."""
    lacking = {CONFIG, BASE} - set(catalog)
    if lacking:
        raise _core.LayoutMismatch(
            f"this model is no LoRA adapter: it has no {min(lacking)}. Publish it with "
            "source=Adapter(peft_model), under a model name of its own"
        )
    return {name: torch.empty(e.shape, dtype=_torch_type(name, e.dtype)) for name, e in catalog.items()}


def _torch_type(name: str, dtype: str) -> torch.dtype:
    known = {"U8": torch.uint8, "I64": torch.int64, "F32": torch.float32, "F16": torch.float16}
    known["BF16"] = torch.bfloat16
    if dtype not in known:
        raise _core.LayoutMismatch(f"{name}: adapters are F32, F16 or BF16, not {dtype}")
    return known[dtype]


def _of_another(name: str) -> bool:
    """Whether a parameter is of another LoRA adapter of the model."""
    return any(part.startswith("lora_") for part in name.split("."))


def _plain(value: Any) -> Any:
    """JSON for what peft's configurations have beside plain values."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
