//! What is known of each tower that sees, as data.

use crate::model::role::TensorRole::{self, *};
use TowerSize::*;

/// A tower and what leads from it to the decoder.
pub(crate) struct Tower {
    /// Its module in the checkpoint.
    pub(crate) module: &'static str,
    pub(crate) tensors: &'static [&'static [TowerTensor]],
}

/// A weight of a tower, one for each block where its module has `{L}`.
pub(crate) struct TowerTensor {
    pub(crate) role: TensorRole,
    pub(crate) module: &'static str,
    pub(crate) shape: &'static [TowerSize],
    /// Beside it a bias, of as many elements as it has rows.
    pub(crate) bias: bool,
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
    /// What the decoder takes.
    Decoder,
    Colours,
    Frames,
    Patch,
    /// Positions of patches.
    Grid,
}

const fn plain(role: TensorRole, module: &'static str, shape: &'static [TowerSize]) -> TowerTensor {
    TowerTensor { role, module, shape, bias: false }
}

const fn biased(
    role: TensorRole,
    module: &'static str,
    shape: &'static [TowerSize],
) -> TowerTensor {
    TowerTensor { role, module, shape, bias: true }
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
    biased(MergerDown, "merger.mlp.2", &[Decoder, Merged]),
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
    biased(MergerDown, "merger.linear_fc2", &[Decoder, Merged]),
];

/// Of Qwen3-VL alone, the mergers behind some of its blocks.
pub(crate) const QWEN3_INNER: &[TowerTensor] = &[
    biased(InnerMergerNorm, "deepstack_merger_list.{L}.norm", &[Merged]),
    biased(InnerMergerUp, "deepstack_merger_list.{L}.linear_fc1", &[Merged, Merged]),
    biased(InnerMergerDown, "deepstack_merger_list.{L}.linear_fc2", &[Decoder, Merged]),
];
