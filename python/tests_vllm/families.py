"""Tiny configs of many families, and what their checkpoints hold as transformers saves them."""

import tempfile
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from weightcast.adapters.catalog import Catalog, catalog_of

#: Sizes that most configs know by these names.
COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
    "max_position_embeddings": 64,
}

MAMBA2_ALONE = {"num_heads": 8, "head_dim": 16, "state_size": 16, "intermediate_size": 128}
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_expand": 2,
}


@dataclass(frozen=True)
class Family:
    """A kind of model: transformers' type of it, vLLM's class, and sizes of its own."""

    model_type: str
    architecture: str
    sizes: dict[str, Any] = field(default_factory=dict)
    experts: bool = False
    #: Of transformers, for checkpoints.
    auto: str = "AutoModelForCausalLM"

    def config(self) -> dict[str, Any]:
        """As `config.json` has it."""
        return self._config().to_dict() | {"architectures": [self.architecture]}

    def catalog(self) -> Catalog:
        """What a checkpoint holds that transformers has saved."""
        model = self._model()
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory)
            return catalog_of(directory)

    def elements(self) -> int:
        """How large the model is."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self._model().parameters())

    def _model(self) -> torch.nn.Module:
        return getattr(transformers, self.auto).from_config(self._config(), dtype=torch.bfloat16)

    def _config(self) -> Any:
        return transformers.AutoConfig.for_model(self.model_type, **{**COMMON, **self.sizes})


#: Whose loaders compute, take buffers for parameters, fill with constants, or pick experts by number.
MENDED = {
    "mamba": Family("mamba", "MambaForCausalLM", {"state_size": 8, "intermediate_size": 128}),
    "mamba2": Family(
        "mamba2", "Mamba2ForCausalLM",
        MAMBA2_ALONE | {"n_groups": 2},
    ),
    "mamba2, one group": Family(
        "mamba2", "Mamba2ForCausalLM",
        MAMBA2_ALONE | {"n_groups": 1},
    ),
    "falcon_h1": Family("falcon_h1", "FalconH1ForCausalLM", MAMBA2 | {"mamba_d_ssm": 128}),
    "granite-4": Family(
        "granitemoehybrid", "GraniteMoeHybridForCausalLM",
        MAMBA2 | {
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "shared_intermediate_size": 32,
            "position_embedding_type": "rope",
        },
        experts=True,
    ),
    "nemotron_h": Family(
        "nemotron_h", "NemotronHForCausalLM",
        {
            "layers_block_type": ["mamba", "moe", "attention", "mlp"],
            "num_hidden_layers": 4,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "head_dim": 16,
            "n_routed_experts": 4,
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 32,
        },
        experts=True,
    ),
    "jamba": Family(
        "jamba", "JambaForCausalLM",
        {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "mamba_d_state": 8,
        },
        experts=True,
    ),
    "zamba2": Family(
        "zamba2", "Zamba2ForCausalLM",
        {
            "layers_block_type": ["mamba", "hybrid"],
            "n_mamba_heads": 8,
            "mamba_d_state": 16,
            "num_key_value_heads": 4,
            "adapter_rank": 8,
        },
    ),
    "llama4": Family(
        "llama4_text", "Llama4ForCausalLM",
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "intermediate_size_mlp": 96,
            "interleave_moe_layer_step": 2,
            "layer_types": ["full_attention", "full_attention"],
        },
        experts=True,
    ),
    "whisper": Family(
        "whisper", "WhisperForConditionalGeneration",
        {
            "d_model": 64,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "max_source_positions": 32,
            "max_target_positions": 64,
            "pad_token_id": 0,
        },
        auto="AutoModelForSpeechSeq2Seq",
    ),
    "llama, classes": Family(
        "llama", "LlamaForSequenceClassification", auto="AutoModelForSequenceClassification"
    ),
    "bert, classes": Family(
        "bert", "BertForSequenceClassification", auto="AutoModelForSequenceClassification"
    ),
    "apertus": Family("apertus", "ApertusForCausalLM"),
    "falcon": Family("falcon", "FalconForCausalLM", {"tie_word_embeddings": True}),
    "falcon, new": Family(
        "falcon", "FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}
    ),
}
