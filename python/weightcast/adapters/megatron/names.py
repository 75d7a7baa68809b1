"""What published checkpoints call what Megatron holds.

Keys are those of `sharded_state_dict`, with layers and experts numbered over the whole model, and with the
halves of a gated projection apart: `_w` is the gate, `_v` what it gates. Norms that a local spec has by
themselves are there under their fused names.
"""

from typing import Any

from ... import _core
from ...names import NameMap, Rows

#: What is beside the layers.
_OUTSIDE: Rows = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.*": "model.norm.*",
    "output_layer.weight": "lm_head.weight",
}

#: Within a layer. Three names are those of queries, keys and values.
_ATTENTION: Rows = {
    "input_layernorm.*": "input_layernorm.*",
    "self_attention.linear_qkv.layer_norm_*": "input_layernorm.*",
    "self_attention.linear_qkv.*": ("self_attn.q_proj.*", "self_attn.k_proj.*", "self_attn.v_proj.*"),
    "self_attention.linear_proj.*": "self_attn.o_proj.*",
    "self_attention.q_layernorm.*": "self_attn.q_norm.*",
    "self_attention.k_layernorm.*": "self_attn.k_norm.*",
}

#: The same with latent attention.
_LATENT_ATTENTION: Rows = {
    "input_layernorm.*": "input_layernorm.*",
    "self_attention.linear_q_proj.*": "self_attn.q_proj.*",
    "self_attention.linear_q_down_proj.*": "self_attn.q_a_proj.*",
    "self_attention.linear_q_up_proj.layer_norm_*": "self_attn.q_a_layernorm.*",
    "self_attention.q_layernorm.*": "self_attn.q_a_layernorm.*",
    "self_attention.linear_q_up_proj.*": "self_attn.q_b_proj.*",
    "self_attention.linear_kv_down_proj.*": "self_attn.kv_a_proj_with_mqa.*",
    "self_attention.linear_kv_up_proj.layer_norm_*": "self_attn.kv_a_layernorm.*",
    "self_attention.kv_layernorm.*": "self_attn.kv_a_layernorm.*",
    "self_attention.linear_kv_up_proj.*": "self_attn.kv_b_proj.*",
    "self_attention.linear_proj.*": "self_attn.o_proj.*",
}

_MLP: Rows = {
    "pre_mlp_layernorm.*": "post_attention_layernorm.*",
    "mlp.linear_fc1.layer_norm_*": "post_attention_layernorm.*",
    "mlp.linear_fc1.*_w": "mlp.gate_proj.*",
    "mlp.linear_fc1.*_v": "mlp.up_proj.*",
    "mlp.linear_fc1.*": "mlp.up_proj.*",
    "mlp.linear_fc2.*": "mlp.down_proj.*",
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias",
    "mlp.experts.experts.*.linear_fc1.*_w": "mlp.experts.*.gate_proj.*",
    "mlp.experts.experts.*.linear_fc1.*_v": "mlp.experts.*.up_proj.*",
    "mlp.experts.experts.*.linear_fc1.*": "mlp.experts.*.up_proj.*",
    "mlp.experts.experts.*.linear_fc2.*": "mlp.experts.*.down_proj.*",
}

_SHARED_EXPERTS: Rows = {
    "mlp.shared_experts.linear_fc1.*_w": "mlp.{shared}.gate_proj.*",
    "mlp.shared_experts.linear_fc1.*_v": "mlp.{shared}.up_proj.*",
    "mlp.shared_experts.linear_fc1.*": "mlp.{shared}.up_proj.*",
    "mlp.shared_experts.linear_fc2.*": "mlp.{shared}.down_proj.*",
    "mlp.shared_experts.gate_weight": "mlp.shared_expert_gate.weight",
}

#: What Mixtral's and MiniMax's checkpoints call otherwise: `layout(model, names=MIXTRAL)`.
MIXTRAL = NameMap(
    {
        f"decoder.layers.*.mlp.{left}": f"model.layers.*.block_sparse_moe.{right}"
        for left, right in {
            "router.weight": "gate.weight",
            "router.expert_bias": "e_score_correction_bias",
            "experts.experts.*.linear_fc1.*_w": "experts.*.w1.*",
            "experts.experts.*.linear_fc2.*": "experts.*.w2.*",
            "experts.experts.*.linear_fc1.*_v": "experts.*.w3.*",
        }.items()
    }
)


def map_for(config: Any) -> NameMap:
    """The map of a model with this `TransformerConfig`: of the checkpoints of Llama, Mistral, Qwen, DeepSeek
    and GLM, and others that are named like them."""
    attention = _LATENT_ATTENTION if getattr(config, "multi_latent_attention", False) else _ATTENTION
    # Checkpoints that gate the shared expert have one, and say so in its name.
    shared = "shared_expert" if getattr(config, "moe_shared_expert_gate", False) else "shared_experts"
    rows = dict(_OUTSIDE)
    for left, right in {**attention, **_MLP, **_SHARED_EXPERTS}.items():
        names = [right] if isinstance(right, str) else list(right or ())
        placed = [f"model.layers.*.{name}".replace("{shared}", shared) for name in names]
        rows[f"decoder.layers.*.{left}"] = placed[0] if isinstance(right, str) else placed
    return NameMap(rows)


def published(key: str, maps: list[NameMap]) -> tuple[str, ...]:
    """The names of a key: by the first map that has a row for the key; three are those of queries, keys and
    values, none leaves out."""
    for names in maps:
        found = names.published(key)
        if found is None:
            return ()
        if not isinstance(found, str):
            return found.matrices
        if found != key:
            return (found,)
    raise _core.LayoutMismatch(
        f"{key}: weightcast knows no published name of this part of a Megatron model; say it by "
        f"names=weightcast.NameMap({{{key!r}: name}}), with * for numbers, or leave it out with None"
    )
