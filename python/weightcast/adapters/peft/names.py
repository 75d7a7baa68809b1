"""What the base model's checkpoint calls the parameters of a PEFT model."""

from typing import Any

from ...names import NameMap, Stack, map_of

#: Before the names of the base model.
PREFIX = "base_model.model."
#: Parts of a path that stand between a layer and what PEFT has wrapped of it.
WRAPPED = ("base_layer",)


def is_peft(module: Any) -> bool:
    """Whether a module is a model of PEFT."""
    return hasattr(module, "peft_config") and hasattr(module, "get_base_model")


class BaseNames(NameMap):
    """Names of the base model's checkpoint by those of a PEFT model; None for what only the adapters have,
    and for what they have replaced (`modules_to_save`). `names` are those of the base model itself."""

    def __init__(self, model: Any, names: NameMap | None = None) -> None:
        super().__init__()
        self._names = names or map_of(model.get_base_model())
        self._saved = {f"modules_to_save.{adapter}" for adapter in _active(model)}

    def published(self, name: str) -> str | Stack | None:
        """What is published of the parameter of this name."""
        known = super().published(name)
        assert isinstance(known, str), "without rows it is a name"
        parts = known.removeprefix(PREFIX).split(".")
        if any(part.startswith("lora_") or part == "original_module" for part in parts):
            return None
        if "modules_to_save" in parts:
            at = parts.index("modules_to_save")
            if ".".join(parts[at : at + 2]) not in self._saved:
                return None
            del parts[at : at + 2]
        return self._names.published(".".join(part for part in parts if part not in WRAPPED))


def _active(model: Any) -> list[str]:
    found = model.active_adapters
    return list(found() if callable(found) else found)
