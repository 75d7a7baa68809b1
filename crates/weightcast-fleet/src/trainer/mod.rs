//! Trainers: which slices of a checkpoint each rank holds, by rule.

mod megatron;
mod mesh;
mod stages;

use weightcast_plan::DType;

use crate::error::RuleError;
use crate::model::ModelSpec;
use crate::record::RankLayout;
pub use megatron::{Coordinates, Megatron};

/// A trainer's ranks and what they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trainer {
    /// How weights are spread over the ranks.
    pub parallelism: Parallelism,
    /// Type of what the checkpoint does not hold in F32; the checkpoint's, if none.
    pub dtype: Option<DType>,
    /// The draft layers too.
    pub draft: bool,
}

/// How a trainer spreads its weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // degrees of the named axes
pub enum Parallelism {
    /// Everything on each rank.
    Ddp { dp: u64 },
    /// Rows over `dp`, each tensor by itself; under tensor parallelism, rows of what that left.
    Fsdp2 { dp: u64, tp: u64 },
    /// `replicate` copies, rows of each over `shard`.
    Hsdp { replicate: u64, shard: u64 },
    /// Layers over `pp`; experts over `ep` and their rows over `fsdp`; the rest over `ep`.
    FsdpEp { fsdp: u64, pp: u64, pp_layers: Vec<u64>, ep: u64 },
    /// Megatron-Core.
    Megatron(Megatron),
}

impl Trainer {
    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        let degrees: &[u64] = match &self.parallelism {
            Parallelism::Ddp { dp } => &[*dp],
            Parallelism::Fsdp2 { dp, tp } => &[*dp, *tp],
            Parallelism::Hsdp { replicate, shard } => &[*replicate, *shard],
            Parallelism::FsdpEp { fsdp, pp, ep, .. } => &[*fsdp, *pp, *ep],
            Parallelism::Megatron(m) => &[m.tp, m.cp, m.dp, m.pp],
        };
        degrees.iter().fold(1, |ranks: u64, &degree| ranks.saturating_mul(degree))
    }

    /// What this rank holds of a model, which is not quantised.
    pub fn layout(&self, model: &ModelSpec, rank: u64) -> Result<RankLayout, RuleError> {
        let ranks = self.ranks();
        if rank >= ranks {
            return Err(RuleError::Rank { rank, ranks, spec: "the trainer".into() });
        }
        let records = match &self.parallelism {
            Parallelism::Megatron(megatron) => megatron::records(megatron, model, self, rank)?,
            _ => mesh::records(self, model, rank)?,
        };
        Ok(RankLayout { records, warnings: Vec::new() })
    }

    /// The local type of a tensor of this type.
    fn local(&self, model: &ModelSpec, dtype: DType) -> DType {
        if dtype == model.dtype { self.dtype.unwrap_or(dtype) } else { dtype }
    }
}
