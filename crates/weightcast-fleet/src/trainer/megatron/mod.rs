//! Megatron-Core: interleaved query-key-value rows, `[gate; up]` on each rank, padded vocabulary,
//! pipeline stages, norms under fused names, permuted indexer rows.
//!
//! Names are Megatron's, with layers numbered over the whole model. The rules are those of
//! `megatron.core` (d98e8a64) and of the converters of slime and Miles.

mod attention;
mod grid;
mod list;
mod mlp;

use crate::error::RuleError;
use crate::model::{ModelSpec, TensorRole};
use crate::record::Record;
use crate::trainer::Trainer;
pub use grid::Coordinates;
use list::MegatronParameters;

/// The degrees of a Megatron trainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Megatron {
    /// Tensor parallelism.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Layers of each stage; the same for all, if none are given.
    pub pp_layers: Vec<u64>,
    /// Context parallelism: full copies.
    pub cp: u64,
    /// Expert parallelism.
    pub ep: u64,
    /// Tensor parallelism of experts.
    pub etp: u64,
    /// Data parallelism: full copies.
    pub dp: u64,
    /// `make_vocab_size_divisible_by`: the vocabulary is padded to a multiple of this times `tp`.
    pub vocab_multiple: u64,
}

/// What a rank holds.
pub(super) fn records(
    megatron: &Megatron,
    model: &ModelSpec,
    trainer: &Trainer,
    rank: u64,
) -> Result<Vec<Record>, RuleError> {
    RuleError::refuse_without(model, "Megatron")?;
    if !model.is_decoder {
        return Err(RuleError::Computes {
            engine: "Megatron",
            model_type: model.model_type.clone(),
            why: "its weights are transposed, which no slice is",
        });
    }
    let at = megatron.coordinates(rank)?;
    let mut list = MegatronParameters::new(megatron, model, trainer, at)?;
    if at.pp == 0 {
        list.vocabulary(TensorRole::Embedding, "embedding.word_embeddings.weight");
    }
    list.attention()?;
    list.mlp()?;
    if at.pp + 1 == megatron.pp {
        list.whole(TensorRole::FinalNorm, "decoder.final_layernorm")?;
        list.vocabulary(TensorRole::Head, "output_layer.weight");
        if model.dims.tied && megatron.pp > 1 {
            // The last stage has a copy of the tied embedding.
            list.vocabulary(TensorRole::Embedding, "output_layer.weight");
        }
    }
    Ok(list.finish())
}
