//! Engines: which slices of a checkpoint each rank of vLLM and SGLang holds, by rule.
//!
//! Rules are the fallback: where a live engine can be asked, its own loader is the truth
//! (`weightcast.adapters`). They were read off vLLM 0.32 and SGLang 0.5.23, whose real classes the
//! data set was compared with.

mod attention;
mod experts;
mod list;
mod mlp;
mod ranks;
mod tower;

use weightcast_plan::DType;

use crate::error::RuleError;
use crate::model::{ModelSpec, TensorRole};
use crate::record::RankLayout;
use list::EngineParameters;
pub(crate) use ranks::Ranks;

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum Program {
    Vllm,
    Sglang,
}

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Vllm => "vLLM",
            Program::Sglang => "SGLang",
        }
    }
}

/// Which experts a rank has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpertPlacement {
    /// Consecutive ones.
    #[default]
    Linear,
    /// Every n-th one.
    RoundRobin,
}

/// An engine and its parallelism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Which engine.
    pub program: Program,
    /// Tensor-parallel ranks (for vLLM: of each data-parallel one).
    pub tp: u64,
    /// vLLM: data-parallel ranks, over which experts are spread as well.
    pub dp: u64,
    /// Expert-parallel ranks; 1 for none.
    pub ep: u64,
    /// Which experts a rank has.
    pub placement: ExpertPlacement,
    /// SGLang: data-parallel attention ranks.
    pub attention_dp: u64,
    /// SGLang: every rank has the dense MLPs whole.
    pub dense_whole: bool,
    /// SGLang: every rank has the shared experts whole (an all-to-all backend).
    pub shared_whole: bool,
    /// Copies of experts beyond the first.
    pub redundant: u64,
    /// Type of what is neither quantised nor F32 by rule; the checkpoint's, if none.
    pub dtype: Option<DType>,
    /// The draft layers too.
    pub draft: bool,
}

impl Engine {
    /// Number of ranks of one engine.
    pub fn ranks(&self) -> u64 {
        self.tp.saturating_mul(self.dp)
    }

    /// What this rank holds.
    pub fn layout(&self, model: &ModelSpec, rank: u64) -> Result<RankLayout, RuleError> {
        RuleError::refuse_without(model, self.program.name())?;
        let ranks = Ranks::of(self, model, rank)?;
        if !model.is_decoder {
            return Err(RuleError::Computes {
                engine: self.program.name(),
                model_type: model.model_type.clone(),
                why: "its weights are transposed or shuffled, which no slice is; \
                      read the layout off a live engine",
            });
        }
        let mut list = EngineParameters::new(model, self, &ranks);
        list.tower()?;
        list.vocabulary(TensorRole::Embedding)?;
        list.layers(false)?;
        list.whole(TensorRole::FinalNorm)?;
        list.vocabulary(TensorRole::Head)?;
        if self.draft && model.dims.draft_layers > 0 {
            self.refuse_drafts(model.dims.draft_layers)?;
            list.layers(true)?;
        }
        Ok(list.finish())
    }

    /// SGLang loads a draft of one layer.
    fn refuse_drafts(&self, layers: u64) -> Result<(), RuleError> {
        if self.program == Program::Vllm || layers == 1 {
            return Ok(());
        }
        let what = format!("SGLang takes one draft layer, not {layers} (num_nextn_predict_layers)");
        Err(RuleError::Degrees { what })
    }
}
