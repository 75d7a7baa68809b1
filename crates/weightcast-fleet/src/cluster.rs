//! One side of a transfer: a model on all ranks of a spec.

use crate::error::RuleError;
use crate::model::{ModelSpec, Quantisation};
use crate::record::RankLayout;
use crate::spec::{Quantise, Side, Spec};

/// Elements along each side of a block where neither spec nor config says.
const BLOCK: u64 = 128;

/// Most ranks of a side: more than any job has.
const MOST_RANKS: u64 = 65_536;

/// A model on the ranks of a spec, quantised as that says.
#[derive(Debug, Clone)]
pub struct Cluster {
    model: ModelSpec,
    side: Side,
}

impl Cluster {
    /// The model as the spec's ranks hold it. A trainer's checkpoint is never quantised.
    pub fn new(model: &ModelSpec, spec: &Spec) -> Result<Cluster, RuleError> {
        let cluster = |model| Cluster { model, side: spec.side.clone() };
        let ranks = cluster(model.clone()).ranks();
        if ranks > MOST_RANKS {
            let what = format!("{spec} has {ranks} ranks; at most {MOST_RANKS} are supported");
            return Err(RuleError::Degrees { what });
        }
        let draft = match &spec.side {
            Side::Engine(engine) => engine.draft,
            Side::Trainer(trainer) => trainer.draft,
        };
        if draft && model.unruled_drafts {
            let model_type = &model.model_type;
            let what = format!("no rule lays out the draft layers of {model_type}; leave out mtp");
            return Err(RuleError::Degrees { what });
        }
        let model = match spec.quantise {
            Quantise::AsConfigured => model.clone(),
            Quantise::Never => model.quantised(None)?,
            Quantise::Fp8 { .. } if !model.fp8 => {
                let model_type = &model.model_type;
                let what = format!(
                    "no rule lays out {model_type} in FP8 blocks; leave out quant and block"
                );
                return Err(RuleError::Degrees { what });
            }
            Quantise::Fp8 { block } => {
                let configured = model.quantisation.clone();
                let mut quantisation = configured.unwrap_or_else(|| Quantisation::fp8(BLOCK));
                if let Some(block) = block {
                    quantisation.block = (block, block);
                }
                model.quantised(Some(quantisation))?
            }
        };
        Ok(cluster(model))
    }

    /// The model, quantised as the ranks hold it.
    pub fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        match &self.side {
            Side::Engine(engine) => engine.ranks(),
            Side::Trainer(trainer) => trainer.ranks(),
        }
    }

    /// The name of what all ranks hold: 16 bytes of BLAKE3 over their records as
    /// `weightcast layout --json` prints them, in hexadecimal.
    pub fn digest(&self) -> Result<String, RuleError> {
        let mut hasher = blake3::Hasher::new_derive_key("weightcast cluster 1");
        for rank in 0..self.ranks() {
            let layout = self.layout(rank)?;
            let records = serde_json::to_vec(&layout).expect("plain data has a JSON form");
            hasher.update(&(records.len() as u64).to_le_bytes()).update(&records);
        }
        Ok(hasher.finalize().to_hex()[..32].to_owned())
    }

    /// What a rank holds.
    pub fn layout(&self, rank: u64) -> Result<RankLayout, RuleError> {
        match &self.side {
            Side::Engine(engine) => engine.layout(&self.model, rank),
            Side::Trainer(trainer) => trainer.layout(&self.model, rank),
        }
    }
}
