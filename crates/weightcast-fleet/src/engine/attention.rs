//! Attention: heads over the attention ranks, down projections on all of them.

use weightcast_plan::DType;

use super::Program;
use super::list::EngineParameters;
use crate::cut::{Cut, GroupRank, equal};
use crate::error::RuleError;
use crate::model::{ModuleTensor, TensorRole};

impl EngineParameters<'_> {
    /// Attention of the layers now listed.
    pub(crate) fn attention(&mut self) -> Result<(), RuleError> {
        let place = self.ranks.attention;
        match self.model.dims.mla.is_some() {
            true => self.latent_attention(place)?,
            false => self.head_attention(place)?,
        }
        self.linear_attention(place)?;
        match self.model.dims.indexer.is_some() {
            true => self.indexer(),
            false => Ok(()),
        }
    }

    /// Queries, keys and values fused; key-value heads shared where there are more ranks.
    fn head_attention(&mut self, place: GroupRank) -> Result<(), RuleError> {
        let has_bias =
            self.model.of_role(TensorRole::Output).any(|f| f.member == ModuleTensor::Bias);
        if has_bias && !self.model.output_bias_taken {
            return Err(RuleError::Computes {
                engine: self.engine.program.name(),
                model_type: self.model.model_type.clone(),
                why: "it has no o_proj.bias, which attention_bias puts into the checkpoint",
            });
        }
        let dims = &self.model.dims;
        let (heads, keys, head) = (dims.heads, dims.key_heads, dims.head);
        // A head of the query may have a gate behind it.
        let query = self.model.of_role(TensorRole::Query).next();
        let rows = query.map_or(head, |query| query.shape[0] / heads);
        let queries = self.query_heads(heads, rows, place)?;
        let keys = Cut::Heads { place, heads: keys, head };
        let parts =
            [(TensorRole::Query, queries), (TensorRole::Key, keys), (TensorRole::Value, keys)];
        self.module(Some("self_attn.qkv_proj"), &parts)?;
        self.module(None, &[(TensorRole::Output, Cut::Columns(place))])?;
        let norms = match self.model.qk_norm_over_heads {
            true => [queries, keys],
            false => [Cut::Whole; 2],
        };
        self.module(None, &[(TensorRole::QueryNorm, norms[0])])?;
        self.module(None, &[(TensorRole::KeyNorm, norms[1])])
    }

    /// Linear attention: key heads over the attention ranks, and the value heads that go with them.
    fn linear_attention(&mut self, place: GroupRank) -> Result<(), RuleError> {
        let linear = self.model.dims.linear.as_ref();
        let Some(linear) = linear.filter(|_| self.has(TensorRole::LinearOutput)) else {
            return Ok(());
        };
        // Rows may divide where heads do not.
        equal("key heads of linear attention", linear.key_heads, place)?;
        let (keys, values) = linear.rows();
        let (rows, blocks) = (Cut::Rows(place), Cut::Blocks { place, sizes: [keys, keys, values] });
        if self.has(TensorRole::LinearGate) {
            let inputs = [(TensorRole::LinearInput, blocks), (TensorRole::LinearGate, rows)];
            self.module(Some("linear_attn.in_proj_qkvz"), &inputs)?;
            let heads = [TensorRole::LinearStrength, TensorRole::LinearDecay];
            self.module(Some("linear_attn.in_proj_ba"), &heads.map(|role| (role, rows)))?;
        } else {
            self.module(None, &[(TensorRole::LinearInput, rows)])?;
            self.module(None, &[(TensorRole::LinearStrength, rows)])?;
        }
        for (role, cut) in [
            (TensorRole::LinearConvolution, blocks),
            (TensorRole::LinearTimeBias, rows),
            (TensorRole::LinearDecayLog, rows),
            (TensorRole::LinearNorm, Cut::Whole),
            (TensorRole::LinearOutput, Cut::Columns(place)),
        ] {
            self.module(None, &[(role, cut)])?;
        }
        Ok(())
    }

    /// Engines refuse heads that do not divide. Such a layout can be written down with the rest
    /// of the heads on no rank, and is, with a warning: the data set has such.
    fn query_heads(&mut self, heads: u64, head: u64, place: GroupRank) -> Result<Cut, RuleError> {
        if heads.is_multiple_of(place.of) {
            return Ok(Cut::Rows(place));
        }
        let each = heads / place.of;
        if each == 0 {
            let (what, parts) = ("query heads".to_owned(), place.of);
            return Err(RuleError::Indivisible { what, size: heads, parts });
        }
        self.warn(format!(
            "{} refuses {heads} query heads on {} ranks: {} of them would be on none",
            self.engine.program.name(),
            place.of,
            heads - each * place.of,
        ));
        Ok(Cut::Span { start: place.index * each * head, len: each * head })
    }

    fn latent_attention(&mut self, place: GroupRank) -> Result<(), RuleError> {
        // Rows may divide where heads do not.
        equal("query heads", self.model.dims.heads, place)?;
        let down = Cut::Whole;
        if self.has(TensorRole::QueryDown) {
            let fused = match self.engine.program {
                Program::Vllm => "self_attn.fused_qkv_a_proj",
                Program::Sglang => "self_attn.fused_qkv_a_proj_with_mqa",
            };
            self.module(
                Some(fused),
                &[(TensorRole::QueryDown, down), (TensorRole::KeyValueDown, down)],
            )?;
            self.whole(TensorRole::QueryDownNorm)?;
            self.module(None, &[(TensorRole::QueryUp, Cut::Rows(place))])?;
        } else {
            self.module(None, &[(TensorRole::Query, Cut::Rows(place))])?;
            self.whole(TensorRole::KeyValueDown)?;
        }
        self.whole(TensorRole::KeyValueDownNorm)?;
        self.module(None, &[(TensorRole::KeyValueUp, Cut::Rows(place))])?;
        self.module(None, &[(TensorRole::Output, Cut::Columns(place))])
    }

    /// The indexer is on every rank. vLLM fuses keys and head weights, unquantised.
    fn indexer(&mut self) -> Result<(), RuleError> {
        self.whole(TensorRole::IndexQuery)?;
        match self.engine.program {
            Program::Vllm => self.fused_index_keys()?,
            Program::Sglang => {
                self.whole(TensorRole::IndexKey)?;
                self.whole(TensorRole::IndexWeights)?;
            }
        }
        self.whole(TensorRole::IndexKeyNorm)
    }

    fn fused_index_keys(&mut self) -> Result<(), RuleError> {
        let roles = [TensorRole::IndexKey, TensorRole::IndexWeights];
        if self.alike(&roles[..1]).iter().any(|f| f.weights[0].dtype == DType::F8E4M3) {
            return Err(RuleError::Computes {
                engine: self.engine.program.name(),
                model_type: self.model.model_type.clone(),
                why: "the indexer's FP8 keys are dequantised into wk_weights_proj; \
                      publish them unquantised (modules_to_not_convert)",
            });
        }
        let parts = roles.map(|role| (role, Cut::Whole));
        self.module(Some("self_attn.indexer.wk_weights_proj"), &parts)
    }
}
