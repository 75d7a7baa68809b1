//! Why a model and a parallelism make no layout.

use thiserror::Error;

use crate::model::{ConfigError, ModelSpec};

/// Why a model cannot be laid out so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum RuleError {
    /// The config does not describe a model.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No such rank.
    #[error("rank {rank} is outside of the {ranks} ranks of {spec}")]
    Rank { rank: u64, ranks: u64, spec: String },
    /// A size that cannot be cut into equal parts.
    #[error("{what}: {size} cannot be cut into {parts} equal parts; choose a divisor")]
    Indivisible { what: String, size: u64, parts: u64 },
    /// A cut within a block of a quantised weight, which the engine refuses.
    #[error(
        "{what}: {size} elements a rank are no whole number of blocks of {block}; \
         requantise with a block that divides it (block=...) or use fewer ranks"
    )]
    CutBlock { what: String, size: u64, block: u64 },
    /// A parameter of an engine whose parts have different types.
    #[error(
        "{what}: an engine fuses these, and they are {types}; quantise all of them, or leave all of them as they are"
    )]
    MixedParts { what: String, types: String },
    /// Nobody has said how this trainer or engine holds such a model.
    #[error(
        "there are no rules for {model_type} in {side}, only in torch's trainers and {}; \
         read the layout off a live model",
        known.join(", ")
    )]
    NoRules { side: &'static str, model_type: String, known: Vec<&'static str> },
    /// Degrees of parallelism that do not go together.
    #[error("{what}")]
    Degrees { what: String },
    /// A loader that computes: its result is no set of slices.
    #[error("{engine} computes when it loads {model_type}: {why}")]
    Computes { engine: &'static str, model_type: String, why: &'static str },
}

impl RuleError {
    /// Refuses a side that has no rules for the model.
    pub(crate) fn refuse_without(model: &ModelSpec, side: &'static str) -> Result<(), RuleError> {
        if model.ruled_by.contains(&side) {
            return Ok(());
        }
        let (model_type, known) = (model.model_type.clone(), model.ruled_by.to_vec());
        Err(RuleError::NoRules { side, model_type, known })
    }
}
