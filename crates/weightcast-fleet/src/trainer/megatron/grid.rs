//! Where a rank stands: `tp-cp-dp-pp`, and for experts `etp-ep-edp` within a stage.

use super::Megatron;
use crate::error::RuleError;

/// The place of a rank on each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the axes
pub struct Coordinates {
    pub pp: u64,
    pub tp: u64,
    pub cp: u64,
    pub dp: u64,
    pub etp: u64,
    pub ep: u64,
    /// Data parallelism of experts.
    pub edp: u64,
}

impl Megatron {
    /// The place of a rank; the first axis of `tp-cp-dp-pp` varies fastest.
    pub fn coordinates(&self, rank: u64) -> Result<Coordinates, RuleError> {
        let stage = self.tp * self.cp * self.dp;
        if !stage.is_multiple_of(self.ep * self.etp) {
            let what = format!(
                "Megatron: ep={} times etp={} does not divide the {stage} ranks of a stage \
                 (tp*cp*dp)",
                self.ep, self.etp
            );
            return Err(RuleError::Degrees { what });
        }
        let within = rank % stage;
        Ok(Coordinates {
            pp: rank / stage,
            tp: within % self.tp,
            cp: within / self.tp % self.cp,
            dp: within / (self.tp * self.cp),
            etp: within % self.etp,
            ep: within / self.etp % self.ep,
            edp: within / (self.etp * self.ep),
        })
    }
}
