"""Tiny models of families that parts, experts or layers of several kinds set apart: what the rules of each say is held
against its class, at sizes that no two parts share."""

import importlib.util
import re
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
    #: transformers 5 saves each expert by itself; they are published in one tensor, `[experts, out, in]`.
    stacked: bool = False
    #: How published names begin where transformers 5 begins them otherwise: this, and that.
    published: tuple[str, str] = ("", "")
    #: What is published in F32, and transformers 5 saves in the type of the rest.
    published_f32: str = ""

    def catalog(self) -> Catalog:
        """What the published checkpoint holds."""
        as_saved, begins = self.published
        saved = {
            begins + name.removeprefix(as_saved) if name.startswith(as_saved) else name: entry
            for name, entry in super().catalog().items()
        }
        for name, entry in saved.items():
            if self.published_f32 and name.endswith(self.published_f32):
                saved[name] = Entry(entry.shape, "F32")
        if self.stacked:
            saved = _stacked(saved)
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


def _stacked(saved: Catalog) -> Catalog:
    stacked: Catalog = {}
    for name, entry in saved.items():
        found = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name)
        if found is None:
            stacked[name] = entry
            continue
        module, expert, projection = found[1], int(found[2]), found[3]
        rows, columns = entry.shape
        shape = (rows, columns) if projection == "down" else (2 * rows, columns)
        joined = f"{module}.{'down_proj' if projection == 'down' else 'gate_up_proj'}"
        experts = max(expert + 1, stacked[joined].shape[0] if joined in stacked else 0)
        stacked[joined] = Entry((experts, *shape), entry.dtype)
    return stacked


#: Rotary embedding over time, height and width.
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
INTERLEAVED = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 3, 3],
        "mrope_interleaved": True,
        "partial_rotary_factor": 1.0,
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
QWEN35_VISION = QWEN_VISION | {"num_position_embeddings": 16}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
GEMMA3 = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}
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
    "gemma3_text": Ruled("gemma3_text", "Gemma3ForCausalLM", GEMMA3),
    "gemma3_text, untied": Ruled(
        "gemma3_text", "Gemma3ForCausalLM", GEMMA3 | {"tie_word_embeddings": False}
    ),
    "gemma3": Ruled(
        "gemma3", "Gemma3ForConditionalGeneration",
        {"mm_tokens_per_image": 4, "image_token_index": 199},
        auto=SEES,
        text=GEMMA3,
        vision={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": 8,
            "patch_size": 2,
            "vision_use_head": False,
        },
        published=("vision_tower.", "vision_tower.vision_model."),
    ),
    "minimax_m2": Ruled(
        "minimax_m2", "MiniMaxM2ForCausalLM",
        {
            "head_dim": 16,
            "intermediate_size": 24,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "rotary_dim": 8,
            "scoring_func": "sigmoid",
            "use_routing_bias": True,
        },
        experts=True,
        published_f32="e_score_correction_bias",
    ),
    "qwen3_next": Ruled(
        "qwen3_next", "Qwen3NextForCausalLM",
        LINEAR | EXPERTS | {"head_dim": 16, "shared_expert_intermediate_size": 40},
        experts=True,
    ),
    "qwen3_5": Ruled(
        "qwen3_5", "Qwen3_5ForConditionalGeneration",
        auto=SEES,
        text=INTERLEAVED | LINEAR | {"head_dim": 16},
        vision=QWEN35_VISION,
    ),
    "qwen3_5, tied": Ruled(
        "qwen3_5", "Qwen3_5ForConditionalGeneration",
        {"tie_word_embeddings": True},
        auto=SEES,
        text=INTERLEAVED | LINEAR | {"head_dim": 16, "tie_word_embeddings": True},
        vision=QWEN35_VISION,
    ),
    "qwen3_5_moe": Ruled(
        "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
        auto=SEES,
        text=INTERLEAVED | LINEAR | EXPERTS | {"head_dim": 16, "shared_expert_intermediate_size": 40},
        vision=QWEN35_VISION,
        experts=True,
        stacked=True,
    ),
}
