//! One side of a transfer: a model on all ranks of a spec.

use crate::error::RuleError;
use crate::model::{Model, Quantisation};
use crate::record::RankLayout;
use crate::spec::{Quantise, Side, Spec};

/// Elements along each side of a block where neither spec nor config says.
const BLOCK: u64 = 128;

/// A model on the ranks of a spec, quantised as that says.
#[derive(Debug, Clone)]
pub struct Cluster {
    model: Model,
    side: Side,
}

impl Cluster {
    /// The model as the spec's ranks hold it. A trainer's checkpoint is never quantised.
    pub fn new(model: &Model, spec: &Spec) -> Result<Cluster, RuleError> {
        let as_configured = &model.quantisation;
        let quantisation = match spec.quantise {
            Quantise::AsConfigured => as_configured.clone(),
            Quantise::Never => None,
            Quantise::Fp8 { block } => {
                let mut quantisation = as_configured.clone();
                let quantisation = quantisation.get_or_insert(Quantisation::fp8(BLOCK));
                if let Some(block) = block {
                    quantisation.block = (block, block);
                }
                Some(quantisation.clone())
            }
        };
        let model = match quantisation == *as_configured {
            true => model.clone(),
            false => model.quantised(quantisation)?,
        };
        Ok(Cluster { model, side: spec.side.clone() })
    }

    /// The model, quantised as the ranks hold it.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        match &self.side {
            Side::Engine(engine) => engine.ranks(),
            Side::Trainer(trainer) => trainer.ranks(),
        }
    }

    /// What a rank holds.
    pub fn layout(&self, rank: u64) -> Result<RankLayout, RuleError> {
        match &self.side {
            Side::Engine(engine) => engine.layout(&self.model, rank),
            Side::Trainer(trainer) => trainer.layout(&self.model, rank),
        }
    }
}
