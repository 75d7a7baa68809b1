//! Where a rank stands in each group over which weights are cut.

use super::{Engine, Program};
use crate::cut::GroupRank;
use crate::error::RuleError;
use crate::model::ModelSpec;

/// The places of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// Attention, embedding and head.
    pub(crate) attention: GroupRank,
    /// Dense MLPs.
    pub(crate) dense: GroupRank,
    /// Shared experts.
    pub(crate) shared: GroupRank,
    /// Whole experts.
    pub(crate) expert: GroupRank,
    /// Rows and columns of an expert.
    pub(crate) expert_tensor: GroupRank,
}

impl Ranks {
    /// The places of `rank`, if the degrees go together.
    pub(crate) fn of(engine: &Engine, model: &ModelSpec, rank: u64) -> Result<Ranks, RuleError> {
        let ranks = engine.ranks();
        if rank >= ranks {
            let spec = format!("{} with {ranks} ranks", engine.program.name());
            return Err(RuleError::Rank { rank, ranks, spec });
        }
        match engine.program {
            Program::Vllm => vllm(engine, model, rank),
            Program::Sglang => sglang(engine, model, rank),
        }
    }
}

/// Attention and dense layers over tp; experts over all ranks, whole with expert parallelism and
/// cut without. Where experts are spread over several data-parallel ranks, ranks may share out the
/// tokens of a layer of experts: then each has the shared experts whole.
fn vllm(engine: &Engine, model: &ModelSpec, rank: u64) -> Result<Ranks, RuleError> {
    let all = GroupRank { index: rank, of: engine.ranks() };
    let tp = GroupRank { index: rank % engine.tp, of: engine.tp };
    if engine.redundant > 0 && engine.ep == 1 {
        let what = format!(
            "vLLM: redundant={} needs experts spread over several ranks (ep=tp*dp)",
            engine.redundant
        );
        return Err(RuleError::Degrees { what });
    }
    let (expert, expert_tensor) = match engine.ep {
        1 => (GroupRank::ALONE, all),
        ep if ep == engine.ranks() => (all, GroupRank::ALONE),
        ep => {
            let (tp, dp) = (engine.tp, engine.dp);
            let what =
                format!("vLLM spreads experts over all ranks: ep={ep} is not tp*dp={}", tp * dp);
            return Err(RuleError::Degrees { what });
        }
    };
    let by_tokens = model.shared_by_tokens && engine.ep > 1 && engine.dp > 1;
    let whole_if = |whole| if whole { GroupRank::ALONE } else { tp };
    Ok(Ranks {
        attention: tp,
        // The classes with sparse attention keep to their tokens through the dense layers.
        dense: whole_if(by_tokens && model.dims.indexer.is_some()),
        shared: whole_if(by_tokens),
        expert,
        expert_tensor,
    })
}

/// Attention over tp/attn_dp; experts over ep, cut over tp/ep; the rest over tp. Only models with
/// experts have their dense MLPs whole.
fn sglang(engine: &Engine, model: &ModelSpec, rank: u64) -> Result<Ranks, RuleError> {
    let (tp, ep, attention_dp) = (engine.tp, engine.ep, engine.attention_dp);
    for (key, degree) in [("ep", ep), ("attn_dp", attention_dp)] {
        if degree == 0 || tp % degree != 0 {
            let what = format!("SGLang: {key}={degree} does not divide tp={tp}");
            return Err(RuleError::Degrees { what });
        }
    }
    let (attention, moe) = (tp / attention_dp, tp / ep);
    let whole = |whole| if whole { GroupRank::ALONE } else { GroupRank { index: rank, of: tp } };
    Ok(Ranks {
        attention: GroupRank { index: rank % attention, of: attention },
        dense: whole(engine.dense_whole && model.dims.moe.is_some()),
        shared: whole(engine.shared_whole),
        expert: GroupRank { index: rank / moe, of: ep },
        expert_tensor: GroupRank { index: rank % moe, of: moe },
    })
}
