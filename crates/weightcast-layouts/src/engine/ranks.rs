//! Where a rank stands in each group over which weights are cut.

use super::{Engine, Program};
use crate::cut::Place;
use crate::error::RuleError;

/// The places of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// Attention, embedding and head.
    pub(crate) attention: Place,
    /// Dense MLPs.
    pub(crate) dense: Place,
    /// Shared experts.
    pub(crate) shared: Place,
    /// Whole experts.
    pub(crate) expert: Place,
    /// Rows and columns of an expert.
    pub(crate) expert_tensor: Place,
}

impl Ranks {
    /// The places of `rank`, if the degrees go together.
    pub(crate) fn of(engine: &Engine, rank: u64) -> Result<Ranks, RuleError> {
        let ranks = engine.ranks();
        if rank >= ranks {
            let spec = format!("{} with {ranks} ranks", engine.program.name());
            return Err(RuleError::Rank { rank, ranks, spec });
        }
        match engine.program {
            Program::Vllm => vllm(engine, rank),
            Program::Sglang => sglang(engine, rank),
        }
    }
}

/// Attention and dense layers over tp; experts over all ranks, whole with expert parallelism and
/// cut without.
fn vllm(engine: &Engine, rank: u64) -> Result<Ranks, RuleError> {
    let all = Place { index: rank, of: engine.ranks() };
    let tp = Place { index: rank % engine.tp, of: engine.tp };
    let (expert, expert_tensor) = match engine.ep {
        1 => (Place::ALONE, all),
        ep if ep == engine.ranks() => (all, Place::ALONE),
        ep => {
            let (tp, dp) = (engine.tp, engine.dp);
            let what =
                format!("vLLM spreads experts over all ranks: ep={ep} is not tp*dp={}", tp * dp);
            return Err(RuleError::Degrees { what });
        }
    };
    Ok(Ranks { attention: tp, dense: tp, shared: tp, expert, expert_tensor })
}

/// Attention over tp/attn_dp; experts over ep, cut over tp/ep; the rest over tp.
fn sglang(engine: &Engine, rank: u64) -> Result<Ranks, RuleError> {
    let (tp, ep, attention_dp) = (engine.tp, engine.ep, engine.attention_dp);
    for (key, degree) in [("ep", ep), ("attn_dp", attention_dp)] {
        if degree == 0 || tp % degree != 0 {
            let what = format!("SGLang: {key}={degree} does not divide tp={tp}");
            return Err(RuleError::Degrees { what });
        }
    }
    let (attention, moe) = (tp / attention_dp, tp / ep);
    let whole = |whole| if whole { Place::ALONE } else { Place { index: rank, of: tp } };
    Ok(Ranks {
        attention: Place { index: rank % attention, of: attention },
        dense: whole(engine.dense_whole),
        shared: whole(engine.shared_whole),
        expert: Place { index: rank / moe, of: ep },
        expert_tensor: Place { index: rank % moe, of: moe },
    })
}
