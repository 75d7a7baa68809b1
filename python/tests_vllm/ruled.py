"""Tiny models of families that parts, experts or layers of several kinds set apart: what the rules of each say is held
against its class, at sizes that no two parts share."""

import importlib.util
from dataclasses import dataclass, field
from typing import Any

import transformers

from tests_sglang import absent
from weightcast.adapters.catalog import Catalog, Entry

from .families import COMMON, Family

#: Classes that see import it for their processors of images, of which none is made here.
if importlib.util.find_spec("torchvision") is None:
    absent.install({"torchvision"})


@dataclass(frozen=True)
class Ruled(Family):
    """A family for which there are rules, and what its parts have for sizes of their own."""

    text: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] = field(default_factory=dict)
    #: Why there are rules for trainers only: what `weightcast layout` says of engines.
    refused: str = ""
    #: transformers 5 saves experts turned over, `[experts, out, in]`; they are published `[experts, in, out]`.
    turned: bool = False

    def catalog(self) -> Catalog:
        """What the published checkpoint holds."""
        saved = super().catalog()
        if self.turned:
            for name, entry in saved.items():
                if ".experts." in name:
                    experts, rows, columns = entry.shape
                    saved[name] = Entry((experts, columns, rows), entry.dtype)
        return saved

    def config(self) -> dict[str, Any]:
        """As a published one: with the type of the weights."""
        return super().config() | {"dtype": "bfloat16"}

    def _config(self) -> Any:
        if not self.vision:
            return super()._config()
        parts = {"text_config": {**COMMON, **self.text}, "vision_config": self.vision}
        return transformers.AutoConfig.for_model(self.model_type, **parts, **self.sizes)


#: Rotary embedding over time, height and width.
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
INTERLEAVED = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 3, 3],
        "mrope_interleaved": True,
    }
}
QWEN_VISION = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_heads": 4,
    "patch_size": 2,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 64,
}
QWEN3_VISION = QWEN_VISION | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2]}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SEES = "AutoModelForImageTextToText"

RULED = {
    "qwen2_5_vl": Ruled(
        "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
        auto=SEES,
        text=SECTIONS,
        vision=QWEN_VISION | {"fullatt_block_indexes": [1], "window_size": 8},
    ),
    "qwen2_5_vl, tied": Ruled(
        "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
        {"tie_word_embeddings": True},
        auto=SEES,
        text=SECTIONS | {"tie_word_embeddings": True},
        vision=QWEN_VISION | {"fullatt_block_indexes": [1], "window_size": 8},
    ),
    "qwen3_vl": Ruled(
        "qwen3_vl", "Qwen3VLForConditionalGeneration",
        auto=SEES,
        text=INTERLEAVED | {"head_dim": 16},
        vision=QWEN3_VISION,
    ),
    "qwen3_vl, tied": Ruled(
        "qwen3_vl", "Qwen3VLForConditionalGeneration",
        {"tie_word_embeddings": True},
        auto=SEES,
        text=INTERLEAVED | {"head_dim": 16, "tie_word_embeddings": True},
        vision=QWEN3_VISION,
    ),
    "qwen3_vl_moe": Ruled(
        "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration",
        auto=SEES,
        text=INTERLEAVED | EXPERTS | {"head_dim": 16, "tie_word_embeddings": False},
        vision=QWEN3_VISION,
        experts=True,
        refused="transposed",
        turned=True,
    ),
}
