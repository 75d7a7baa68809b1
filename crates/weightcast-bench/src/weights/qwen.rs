//! Qwen2.5-0.5B's tensors, from the numbers of its published configuration.

use serde::{Deserialize, Serialize};
use weightcast::transport::bench::Slices;

/// Width of the residual stream.
pub(crate) const HIDDEN: u64 = 896;
/// Rows of the query projection: 14 heads of 64.
pub(crate) const QUERY: u64 = 14 * 64;
/// Rows of the key and of the value projection: 2 heads of 64.
pub(crate) const KEY_VALUE: u64 = 2 * 64;
/// Width of the feed-forward layer.
pub(crate) const INTERMEDIATE: u64 = 4864;

/// The numbers that a quick run makes smaller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Qwen {
    pub(crate) layers: u64,
    pub(crate) vocabulary: u64,
}

impl Qwen {
    /// The real model.
    pub(crate) const FULL: Qwen = Qwen { layers: 24, vocabulary: 151_936 };
    /// The same with two layers and a small vocabulary.
    pub(crate) const QUICK: Qwen = Qwen { layers: 2, vocabulary: 8_192 };

    /// Names and shapes of all tensors. The output projection is tied to the embedding, so it has
    /// no tensor.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, HIDDEN]),
            ("model.norm.weight".to_owned(), vec![HIDDEN]),
        ];
        for layer in 0..self.layers {
            tensors.extend(
                layer_tensors().map(|(name, shape)| (format!("{}{name}", prefix(layer)), shape)),
            );
        }
        tensors
    }

    /// The down projections in BF16 as two tensor-parallel ranks hold them: cut by columns.
    pub(crate) fn slices(&self) -> Slices {
        let row = INTERMEDIATE as usize;
        Slices { bytes: (self.layers * HIDDEN) as usize * 2 * row, row }
    }
}

/// The common prefix of a layer's names.
pub(crate) fn prefix(layer: u64) -> String {
    format!("model.layers.{layer}.")
}

fn layer_tensors() -> [(&'static str, Vec<u64>); 12] {
    [
        ("input_layernorm.weight", vec![HIDDEN]),
        ("self_attn.q_proj.weight", vec![QUERY, HIDDEN]),
        ("self_attn.q_proj.bias", vec![QUERY]),
        ("self_attn.k_proj.weight", vec![KEY_VALUE, HIDDEN]),
        ("self_attn.k_proj.bias", vec![KEY_VALUE]),
        ("self_attn.v_proj.weight", vec![KEY_VALUE, HIDDEN]),
        ("self_attn.v_proj.bias", vec![KEY_VALUE]),
        ("self_attn.o_proj.weight", vec![HIDDEN, QUERY]),
        ("post_attention_layernorm.weight", vec![HIDDEN]),
        ("mlp.gate_proj.weight", vec![INTERMEDIATE, HIDDEN]),
        ("mlp.up_proj.weight", vec![INTERMEDIATE, HIDDEN]),
        ("mlp.down_proj.weight", vec![HIDDEN, INTERMEDIATE]),
    ]
}
