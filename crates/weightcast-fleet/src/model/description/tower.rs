//! What is known of each tower that sees, as data.

use crate::model::role::TensorRole::{self, *};
use TowerSize::*;

/// A tower and what leads from it to the decoder.
pub(crate) struct Tower {
    /// How its names begin in the checkpoint.
    pub(crate) module: &'static str,
    pub(crate) tensors: &'static [&'static [TowerTensor]],
    /// A key of what it may have and engines leave out: only `false` is laid out.
    pub(crate) without: Option<&'static str>,
}

/// A weight of a tower, one for each block where its module has `{L}`.
pub(crate) struct TowerTensor {
    pub(crate) role: TensorRole,
    pub(crate) module: &'static str,
    pub(crate) shape: &'static [TowerSize],
    pub(crate) members: TowerMembers,
}

/// What a module of a tower has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TowerMembers {
    Weight,
    /// Beside it a bias, of as many elements as it has rows.
    WeightAndBias,
    /// The module's name is the tensor's.
    Itself,
}

/// What a size of a tower is, in the words of its config.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TowerSize {
    Hidden,
    /// Rows of a query, a key and a value.
    Projections,
    Wide,
    /// Patches of a square one after the other.
    Merged,
    /// What it gives the decoder.
    Given,
    /// What the decoder takes, by the decoder's own config.
    Decoder,
    Colours,
    Frames,
    Patch,
    /// Positions of patches, as the config says, or as many as an image has.
    Grid,
    Image,
}

const fn plain(role: TensorRole, module: &'static str, shape: &'static [TowerSize]) -> TowerTensor {
    TowerTensor { role, module, shape, members: TowerMembers::Weight }
}

const fn biased(
    role: TensorRole,
    module: &'static str,
    shape: &'static [TowerSize],
) -> TowerTensor {
    TowerTensor { role, module, shape, members: TowerMembers::WeightAndBias }
}

/// Of Qwen2.5-VL: gates, and norms without a bias.
pub(crate) const QWEN25_TOWER: &[TowerTensor] = &[
    plain(TowerPatches, "patch_embed.proj", &[Hidden, Colours, Frames, Patch, Patch]),
    plain(TowerInputNorm, "blocks.{L}.norm1", &[Hidden]),
    plain(TowerPostAttentionNorm, "blocks.{L}.norm2", &[Hidden]),
    biased(TowerQueryKeyValue, "blocks.{L}.attn.qkv", &[Projections, Hidden]),
    biased(TowerOutput, "blocks.{L}.attn.proj", &[Hidden, Hidden]),
    biased(TowerGate, "blocks.{L}.mlp.gate_proj", &[Wide, Hidden]),
    biased(TowerUp, "blocks.{L}.mlp.up_proj", &[Wide, Hidden]),
    biased(TowerDown, "blocks.{L}.mlp.down_proj", &[Hidden, Wide]),
    plain(MergerNorm, "merger.ln_q", &[Hidden]),
    biased(MergerUp, "merger.mlp.0", &[Merged, Merged]),
    biased(MergerDown, "merger.mlp.2", &[Given, Merged]),
];

/// Of Qwen3-VL and what came after it.
pub(crate) const QWEN3_TOWER: &[TowerTensor] = &[
    biased(TowerPatches, "patch_embed.proj", &[Hidden, Colours, Frames, Patch, Patch]),
    plain(TowerPositions, "pos_embed", &[Grid, Hidden]),
    biased(TowerInputNorm, "blocks.{L}.norm1", &[Hidden]),
    biased(TowerPostAttentionNorm, "blocks.{L}.norm2", &[Hidden]),
    biased(TowerQueryKeyValue, "blocks.{L}.attn.qkv", &[Projections, Hidden]),
    biased(TowerOutput, "blocks.{L}.attn.proj", &[Hidden, Hidden]),
    biased(TowerUp, "blocks.{L}.mlp.linear_fc1", &[Wide, Hidden]),
    biased(TowerDown, "blocks.{L}.mlp.linear_fc2", &[Hidden, Wide]),
    biased(MergerNorm, "merger.norm", &[Hidden]),
    biased(MergerUp, "merger.linear_fc1", &[Merged, Merged]),
    biased(MergerDown, "merger.linear_fc2", &[Given, Merged]),
];

/// Of Qwen3-VL alone, the mergers behind some of its blocks.
pub(crate) const QWEN3_INNER: &[TowerTensor] = &[
    biased(InnerMergerNorm, "deepstack_merger_list.{L}.norm", &[Merged]),
    biased(InnerMergerUp, "deepstack_merger_list.{L}.linear_fc1", &[Merged, Merged]),
    biased(InnerMergerDown, "deepstack_merger_list.{L}.linear_fc2", &[Given, Merged]),
];

/// SigLIP, as Gemma 3 has it.
pub(crate) const GEMMA3_TOWER: &[TowerTensor] = &[
    biased(
        TowerPatches,
        "vision_tower.vision_model.embeddings.patch_embedding",
        &[Hidden, Colours, Patch, Patch],
    ),
    plain(
        TowerPositions,
        "vision_tower.vision_model.embeddings.position_embedding",
        &[Image, Hidden],
    ),
    biased(TowerInputNorm, "vision_tower.vision_model.encoder.layers.{L}.layer_norm1", &[Hidden]),
    biased(
        TowerPostAttentionNorm,
        "vision_tower.vision_model.encoder.layers.{L}.layer_norm2",
        &[Hidden],
    ),
    biased(
        TowerQuery,
        "vision_tower.vision_model.encoder.layers.{L}.self_attn.q_proj",
        &[Hidden, Hidden],
    ),
    biased(
        TowerKey,
        "vision_tower.vision_model.encoder.layers.{L}.self_attn.k_proj",
        &[Hidden, Hidden],
    ),
    biased(
        TowerValue,
        "vision_tower.vision_model.encoder.layers.{L}.self_attn.v_proj",
        &[Hidden, Hidden],
    ),
    biased(
        TowerOutput,
        "vision_tower.vision_model.encoder.layers.{L}.self_attn.out_proj",
        &[Hidden, Hidden],
    ),
    biased(TowerUp, "vision_tower.vision_model.encoder.layers.{L}.mlp.fc1", &[Wide, Hidden]),
    biased(TowerDown, "vision_tower.vision_model.encoder.layers.{L}.mlp.fc2", &[Hidden, Wide]),
    biased(TowerFinalNorm, "vision_tower.vision_model.post_layernorm", &[Hidden]),
    plain(MergerNorm, "multi_modal_projector.mm_soft_emb_norm", &[Hidden]),
    TowerTensor {
        role: TowerProjection,
        module: "multi_modal_projector.mm_input_projection_weight",
        shape: &[Hidden, Decoder],
        members: TowerMembers::Itself,
    },
];
