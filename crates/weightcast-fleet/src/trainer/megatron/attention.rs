//! Attention of a Megatron stage.

use super::list::MegatronParameters;
use crate::cut::{self, Cut, piece};
use crate::error::RuleError;
use crate::model::{Family, ModuleTensor, TensorRole};
use crate::record::ParameterPiece;

/// Where attention is.
const MODULE: &str = "decoder.layers.{L}.self_attention";

impl MegatronParameters<'_> {
    /// Attention with the norm before it.
    pub(super) fn attention(&mut self) -> Result<(), RuleError> {
        match self.model.dims.mla.is_some() {
            true => self.latent_attention()?,
            false => self.head_attention()?,
        }
        let output = [(TensorRole::Output, Cut::Columns(self.tp))];
        self.module(&format!("{MODULE}.linear_proj"), &output)?;
        self.whole(TensorRole::PostSelfAttentionNorm, "decoder.layers.{L}.post_self_attn_layernorm")
    }

    fn head_attention(&mut self) -> Result<(), RuleError> {
        self.fused_norm(TensorRole::InputNorm, &format!("{MODULE}.linear_qkv"));
        let roles = [TensorRole::Query, TensorRole::Key, TensorRole::Value];
        for fused in self.alike(&roles) {
            for (member, suffix) in [(ModuleTensor::Weight, "weight"), (ModuleTensor::Bias, "bias")]
            {
                if let [query, key, value] = self.model.members(&fused, member)[..] {
                    let pieces = self.interleaved([query, key, value])?;
                    let name = format!("{MODULE}.linear_qkv.{suffix}");
                    self.push(name, query, pieces, 0, fused.layers);
                }
            }
        }
        self.whole(TensorRole::QueryNorm, &format!("{MODULE}.q_layernorm"))?;
        self.whole(TensorRole::KeyNorm, &format!("{MODULE}.k_layernorm"))
    }

    /// This rank's consecutive rows of `[queries of the group | its key | its value]`, group by
    /// group. With more ranks than groups a rank may have part of a head: no head is shared.
    fn interleaved(&self, families: [&Family; 3]) -> Result<Vec<ParameterPiece>, RuleError> {
        let dims = &self.model.dims;
        let (groups, head) = (dims.key_heads, dims.head);
        let each = [dims.heads / groups * head, head, head];
        let rows = groups * each.iter().sum::<u64>();
        let (first, count) = cut::equal(&families[0].name, rows, self.tp)?;
        let (mut pieces, mut at) = (Vec::new(), 0);
        for group in 0..groups {
            for (family, rows) in families.iter().zip(each) {
                let from = first.max(at);
                let to = (first + count).min(at + rows);
                if from < to {
                    let start = group * rows + (from - at);
                    let range = cut::Range { dim: 0, start, len: to - from };
                    pieces.push(piece(family, range, from - first));
                }
                at += rows;
            }
        }
        Ok(pieces)
    }

    /// Down projections are on every rank, up projections cut by heads.
    fn latent_attention(&mut self) -> Result<(), RuleError> {
        let up = Cut::Rows(self.tp);
        self.whole(TensorRole::InputNorm, "decoder.layers.{L}.input_layernorm")?;
        self.whole(TensorRole::QueryDown, &format!("{MODULE}.linear_q_down_proj"))?;
        self.fused_norm(TensorRole::QueryDownNorm, &format!("{MODULE}.linear_q_up_proj"));
        self.module(&format!("{MODULE}.linear_q_up_proj"), &[(TensorRole::QueryUp, up)])?;
        self.module(&format!("{MODULE}.linear_q_proj"), &[(TensorRole::Query, up)])?;
        self.whole(TensorRole::KeyValueDown, &format!("{MODULE}.linear_kv_down_proj"))?;
        self.fused_norm(TensorRole::KeyValueDownNorm, &format!("{MODULE}.linear_kv_up_proj"));
        self.module(&format!("{MODULE}.linear_kv_up_proj"), &[(TensorRole::KeyValueUp, up)])?;
        self.indexer()
    }

    /// The indexer is on every rank; rows of queries and keys are permuted within each head.
    fn indexer(&mut self) -> Result<(), RuleError> {
        let module = format!("{MODULE}.core_attention.indexer");
        for (role, name) in [
            (TensorRole::IndexQuery, "linear_wq_b"),
            (TensorRole::IndexKey, "linear_wk"),
            (TensorRole::IndexKeyNorm, "k_norm"),
        ] {
            for fused in self.alike(&[role]) {
                for (member, suffix) in
                    [(ModuleTensor::Weight, "weight"), (ModuleTensor::Bias, "bias")]
                {
                    for family in self.model.members(&fused, member) {
                        let name = format!("{module}.{name}.{suffix}");
                        let pieces = self.rotated(family);
                        self.push(name, family, pieces, 0, fused.layers);
                    }
                }
            }
        }
        self.whole(TensorRole::IndexWeights, &format!("{module}.linear_weights_proj"))
    }

    /// Each head's rows with the rotary ones last, where the checkpoint has them first.
    fn rotated(&self, family: &Family) -> Vec<ParameterPiece> {
        let dims = &self.model.dims;
        let head = dims.indexer.as_ref().map_or(1, |indexer| indexer.head).max(1);
        let rope = dims.mla.as_ref().map_or(0, |mla| mla.rope).min(head);
        let part = |start, len, at| piece(family, cut::Range { dim: 0, start, len }, at);
        let heads = (0..family.shape[0]).step_by(head as usize);
        heads
            .flat_map(|row| {
                [part(row + rope, head - rope, row), part(row, rope, row + head - rope)]
            })
            .filter(|piece| !piece.slice.is_empty())
            .collect()
    }
}
