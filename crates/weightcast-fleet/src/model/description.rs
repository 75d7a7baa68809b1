//! What is known of each model type, as data. What a config says for itself (MLA, sparse layers,
//! an indexer, draft layers) is not here.

mod tower;

use super::role::TensorRole;
use tower::{GEMMA3_TOWER, QWEN3_INNER, QWEN3_TOWER, QWEN25_TOWER};
pub(crate) use tower::{Tower, TowerMembers, TowerSize, TowerTensor};

/// Whether something is there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Never,
    Always,
    /// Where the config's key is true.
    Flag(&'static str),
    /// Where the config's key has this text.
    Text(&'static str, &'static str),
}

/// How a model type names and shapes its tensors.
pub(crate) struct ModelType {
    pub(crate) model_types: &'static [&'static str],
    /// The classes that have these tensors and no others.
    pub(crate) architectures: &'static [&'static str],
    pub(crate) kind: CheckpointKind,
    /// What the decoder is a part of.
    pub(crate) multimodal: Option<Multimodal>,
    /// Engines, and Megatron, that have rules for it.
    pub(crate) ruled_by: &'static [&'static str],
    /// Rules lay out its weights in FP8 blocks.
    pub(crate) fp8: bool,
    /// Short words of its published config for what no rule quantises.
    pub(crate) never_quantised: &'static [&'static str],
    /// What its class takes where the config has no number.
    pub(crate) assumed: &'static [(&'static str, u64)],
    /// The head is the embedding where the config does not say.
    pub(crate) tied: bool,
    /// Its checkpoint has draft layers that no rule lays out.
    pub(crate) unruled_drafts: bool,
}

/// A model that sees: a decoder, which `text_config` describes where there is one, and a tower, which
/// `vision_config` does.
pub(crate) struct Multimodal {
    /// The decoder's module in the checkpoint, and its head's.
    pub(crate) decoder: &'static str,
    pub(crate) head: &'static str,
    pub(crate) tower: Tower,
    /// Beginnings of published names that vLLM changes: the first that fits.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
}

const ALL: &[&str] = &["vLLM", "SGLang", "Megatron"];
const VLLM: &[&str] = &["vLLM"];

/// How a checkpoint lists its tensors.
#[allow(clippy::large_enum_variant, reason = "a dozen constants")]
pub(crate) enum CheckpointKind {
    /// `model.layers.{L}` with `self_attn` and `mlp`.
    Decoder(Decoder),
    /// GPT-2: `h.{L}`, weights stored `[in, out]`.
    Gpt2,
    /// gpt-oss: experts fused, and as published in MXFP4 blocks.
    GptOss,
}

/// The variations of a decoder layer.
#[derive(Clone, Copy)]
pub(crate) struct Decoder {
    pub(crate) qkv_bias: When,
    pub(crate) output_bias: When,
    /// Engines have the output's bias where the checkpoint does.
    pub(crate) output_bias_taken: bool,
    pub(crate) mlp_bias: When,
    pub(crate) qk_norm: When,
    /// The norms of query and key are over all heads, with a weight for each element.
    pub(crate) qk_norm_over_heads: bool,
    pub(crate) norms: &'static [(TensorRole, &'static str)],
    /// Of some layers, in place of attention: how the checkpoint stores it.
    pub(crate) linear: Option<LinearForm>,
    /// Each head of the query has a gate behind it.
    pub(crate) gated_query: bool,
    /// `gate_up_proj` is one tensor in the checkpoint.
    pub(crate) fused_gate_up: bool,
    pub(crate) moe: Moe,
    /// The draft layer stores an embedding and a head of its own.
    pub(crate) draft_embeddings: bool,
}

/// How a checkpoint stores the inputs of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinearForm {
    /// Key head by key head: its query, key, values and gates in one tensor, strengths and decays in another.
    ByHead,
    /// Queries, keys and values in one tensor, one after the other; gates, strengths and decays in one each.
    ByKind,
}

/// The variations of a layer of experts.
#[derive(Clone, Copy)]
pub(crate) struct Moe {
    pub(crate) router: &'static str,
    /// The score correction bias of the router.
    pub(crate) correction: When,
    pub(crate) correction_name: &'static str,
    /// Engines hold the router in F32.
    pub(crate) router_f32: bool,
    pub(crate) experts: &'static str,
    pub(crate) expert_form: ExpertForm,
    /// What an expert calls gate, up and down.
    pub(crate) projections: [&'static str; 3],
    pub(crate) shared: &'static str,
    /// vLLM has the shared experts whole where the ranks of a layer share out its tokens.
    pub(crate) shared_by_tokens: bool,
    /// A gate that scales the shared experts.
    pub(crate) shared_switch: Option<&'static str>,
    /// Engines whose class has room for copies of experts.
    pub(crate) copied_in: &'static [&'static str],
}

/// How a checkpoint stores experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertForm {
    /// Each projection of each expert by itself.
    Each,
    /// All experts in one tensor of `[experts, in, out]`, gate and up beside each other.
    InOut,
    /// The same, of `[experts, out, in]`.
    OutIn,
}

const MOE: Moe = Moe {
    router: "mlp.gate",
    correction: When::Never,
    correction_name: "mlp.gate.e_score_correction_bias",
    router_f32: false,
    experts: "mlp.experts",
    expert_form: ExpertForm::Each,
    projections: ["gate_proj", "up_proj", "down_proj"],
    shared: "mlp.shared_experts",
    shared_by_tokens: false,
    shared_switch: None,
    copied_in: &["vLLM", "SGLang"],
};

/// Norms before attention and MLP.
const NORMS: &[(TensorRole, &str)] = &[
    (TensorRole::InputNorm, "input_layernorm"),
    (TensorRole::PostAttentionNorm, "post_attention_layernorm"),
];

/// Norms after them too.
const SANDWICH: &[(TensorRole, &str)] = &[
    (TensorRole::InputNorm, "input_layernorm"),
    (TensorRole::PostAttentionNorm, "post_attention_layernorm"),
    (TensorRole::PostSelfAttentionNorm, "post_self_attn_layernorm"),
    (TensorRole::PostMlpNorm, "post_mlp_layernorm"),
];

/// The same, where what other models have before the MLP is after attention.
const GEMMA_NORMS: &[(TensorRole, &str)] = &[
    (TensorRole::InputNorm, "input_layernorm"),
    (TensorRole::PostSelfAttentionNorm, "post_attention_layernorm"),
    (TensorRole::PostAttentionNorm, "pre_feedforward_layernorm"),
    (TensorRole::PostMlpNorm, "post_feedforward_layernorm"),
];

const PLAIN: Decoder = Decoder {
    qkv_bias: When::Flag("attention_bias"),
    output_bias: When::Flag("attention_bias"),
    output_bias_taken: true,
    mlp_bias: When::Flag("mlp_bias"),
    qk_norm: When::Never,
    qk_norm_over_heads: false,
    norms: NORMS,
    linear: None,
    gated_query: false,
    fused_gate_up: false,
    moe: MOE,
    draft_embeddings: false,
};

const DEEPSEEK: Decoder = Decoder {
    moe: Moe { correction: When::Text("topk_method", "noaux_tc"), shared_by_tokens: true, ..MOE },
    draft_embeddings: true,
    ..PLAIN
};

const QWEN2: Decoder =
    Decoder { qkv_bias: When::Always, output_bias: When::Never, mlp_bias: When::Never, ..PLAIN };

const QWEN3: Decoder =
    Decoder { qk_norm: When::Always, output_bias_taken: false, mlp_bias: When::Never, ..PLAIN };

const QWEN3_NEXT: Decoder = Decoder {
    linear: Some(LinearForm::ByHead),
    gated_query: true,
    moe: Moe {
        shared: "mlp.shared_expert",
        shared_switch: Some("mlp.shared_expert_gate"),
        shared_by_tokens: true,
        copied_in: &["vLLM"],
        ..MOE
    },
    ..QWEN3
};

const QWEN35: Decoder = Decoder {
    linear: Some(LinearForm::ByKind),
    moe: Moe { expert_form: ExpertForm::OutIn, ..QWEN3_NEXT.moe },
    ..QWEN3_NEXT
};

const MINIMAX_M2: Decoder = Decoder {
    qkv_bias: When::Never,
    output_bias: When::Never,
    mlp_bias: When::Never,
    qk_norm: When::Always,
    qk_norm_over_heads: true,
    moe: Moe {
        router: "block_sparse_moe.gate",
        correction: When::Flag("use_routing_bias"),
        correction_name: "block_sparse_moe.e_score_correction_bias",
        router_f32: true,
        experts: "block_sparse_moe.experts",
        projections: ["w1", "w3", "w2"],
        copied_in: &[],
        ..MOE
    },
    ..PLAIN
};

const GEMMA3: Decoder =
    Decoder { qk_norm: When::Always, mlp_bias: When::Never, norms: GEMMA_NORMS, ..PLAIN };

/// Published configs of Gemma 3 name what differs from these.
const GEMMA3_ASSUMED: &[(&str, u64)] = &[
    ("vocab_size", 262_208),
    ("hidden_size", 2304),
    ("intermediate_size", 9216),
    ("num_hidden_layers", 26),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
];

const GEMMA3_VL: Multimodal = Multimodal {
    decoder: "language_model.model",
    head: "language_model.lm_head",
    tower: Tower { module: "", tensors: &[GEMMA3_TOWER], without: Some("vision_use_head") },
    renamed: &[],
};

const QWEN25_VL: Multimodal = Multimodal {
    decoder: "model",
    head: "lm_head",
    tower: Tower { module: "visual.", tensors: &[QWEN25_TOWER], without: None },
    renamed: &[("lm_head.", "language_model.lm_head."), ("model.", "language_model.model.")],
};

const QWEN3_VL: Multimodal = Multimodal {
    decoder: "model.language_model",
    head: "lm_head",
    tower: Tower { module: "model.visual.", tensors: &[QWEN3_TOWER, QWEN3_INNER], without: None },
    renamed: &[
        ("model.visual.", "visual."),
        ("lm_head.", "language_model.lm_head."),
        ("model.language_model.", "language_model.model."),
    ],
};

const QWEN35_VL: Multimodal = Multimodal {
    tower: Tower { module: "model.visual.", tensors: &[QWEN3_TOWER], without: None },
    ..QWEN3_VL
};

/// Every model type that is known.
pub(crate) const MODEL_TYPES: &[ModelType] = &[
    decoder(&["llama", "mistral"], &["LlamaForCausalLM", "MistralForCausalLM"], PLAIN),
    decoder(&["qwen2"], &["Qwen2ForCausalLM"], QWEN2),
    decoder(
        &["qwen2_moe"],
        &["Qwen2MoeForCausalLM"],
        Decoder {
            moe: Moe {
                shared: "mlp.shared_expert",
                shared_switch: Some("mlp.shared_expert_gate"),
                copied_in: &["SGLang"],
                ..MOE
            },
            ..QWEN2
        },
    ),
    decoder(&["qwen3", "qwen3_moe"], &["Qwen3ForCausalLM", "Qwen3MoeForCausalLM"], QWEN3),
    decoder(
        &["mixtral"],
        &["MixtralForCausalLM"],
        Decoder {
            moe: Moe {
                router: "block_sparse_moe.gate",
                experts: "block_sparse_moe.experts",
                projections: ["w1", "w3", "w2"],
                copied_in: &["vLLM"],
                ..MOE
            },
            qkv_bias: When::Never,
            output_bias: When::Never,
            ..PLAIN
        },
    ),
    decoder(
        &["glm4"],
        &["Glm4ForCausalLM"],
        Decoder { output_bias: When::Never, norms: SANDWICH, fused_gate_up: true, ..PLAIN },
    ),
    decoder(
        &["glm4_moe"],
        &["Glm4MoeForCausalLM"],
        Decoder {
            output_bias: When::Never,
            qk_norm: When::Flag("use_qk_norm"),
            moe: Moe { correction: When::Always, router_f32: true, copied_in: &["vLLM"], ..MOE },
            draft_embeddings: true,
            ..PLAIN
        },
    ),
    decoder(
        &["glm4_moe_lite"],
        &["Glm4MoeLiteForCausalLM"],
        Decoder { moe: Moe { correction: When::Always, router_f32: true, ..MOE }, ..PLAIN },
    ),
    decoder(
        &["glm_moe_dsa"],
        &["GlmMoeDsaForCausalLM"],
        Decoder { moe: Moe { correction: When::Always, shared_by_tokens: true, ..MOE }, ..PLAIN },
    ),
    decoder(
        &["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"],
        &["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"],
        DEEPSEEK,
    ),
    ModelType {
        multimodal: Some(QWEN25_VL),
        ruled_by: VLLM,
        fp8: false,
        ..decoder(&["qwen2_5_vl"], &["Qwen2_5_VLForConditionalGeneration"], QWEN2)
    },
    ModelType {
        multimodal: Some(QWEN3_VL),
        ruled_by: VLLM,
        fp8: false,
        ..decoder(&["qwen3_vl"], &["Qwen3VLForConditionalGeneration"], QWEN3)
    },
    ModelType {
        multimodal: Some(QWEN3_VL),
        ruled_by: VLLM,
        fp8: false,
        ..decoder(
            &["qwen3_vl_moe"],
            &["Qwen3VLMoeForConditionalGeneration"],
            Decoder { moe: Moe { expert_form: ExpertForm::InOut, ..MOE }, ..QWEN3 },
        )
    },
    ModelType {
        assumed: GEMMA3_ASSUMED,
        tied: true,
        ruled_by: VLLM,
        fp8: false,
        ..decoder(&["gemma3_text"], &["Gemma3ForCausalLM"], GEMMA3)
    },
    ModelType {
        multimodal: Some(GEMMA3_VL),
        assumed: GEMMA3_ASSUMED,
        tied: true,
        ruled_by: VLLM,
        fp8: false,
        ..decoder(&["gemma3"], &["Gemma3ForConditionalGeneration"], GEMMA3)
    },
    ModelType {
        ruled_by: VLLM,
        never_quantised: &["gate", "e_score_correction_bias"],
        ..decoder(&["minimax_m2"], &["MiniMaxM2ForCausalLM"], MINIMAX_M2)
    },
    ModelType {
        ruled_by: VLLM,
        fp8: false,
        unruled_drafts: true,
        ..decoder(&["qwen3_next"], &["Qwen3NextForCausalLM"], QWEN3_NEXT)
    },
    ModelType {
        multimodal: Some(QWEN35_VL),
        ruled_by: VLLM,
        fp8: false,
        unruled_drafts: true,
        ..decoder(&["qwen3_5"], &["Qwen3_5ForConditionalGeneration"], QWEN35)
    },
    ModelType {
        multimodal: Some(QWEN35_VL),
        ruled_by: VLLM,
        fp8: false,
        unruled_drafts: true,
        ..decoder(&["qwen3_5_moe"], &["Qwen3_5MoeForConditionalGeneration"], QWEN35)
    },
    of_kind(&["gpt2"], &["GPT2LMHeadModel"], CheckpointKind::Gpt2),
    of_kind(&["gpt_oss"], &["GptOssForCausalLM"], CheckpointKind::GptOss),
];

/// Model types of which an engine holds no slices, and why.
pub(crate) const NOT_SLICES: &[(&[&str], &str)] = &[(
    &["llama4", "llama4_text"],
    "vLLM transposes its experts and interleaves the rows of its queries and keys, which no slice is",
)];

const fn decoder(
    model_types: &'static [&'static str],
    architectures: &'static [&'static str],
    decoder: Decoder,
) -> ModelType {
    of_kind(model_types, architectures, CheckpointKind::Decoder(decoder))
}

const fn of_kind(
    model_types: &'static [&'static str],
    architectures: &'static [&'static str],
    kind: CheckpointKind,
) -> ModelType {
    ModelType {
        model_types,
        architectures,
        kind,
        multimodal: None,
        ruled_by: ALL,
        fp8: true,
        assumed: &[],
        tied: false,
        unruled_drafts: false,
        never_quantised: &[],
    }
}
