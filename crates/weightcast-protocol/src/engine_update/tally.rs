//! Which workers have answered the present order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine_update::report::EngineReport;

/// Answers of workers to one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepTally {
    answered: BTreeMap<u32, Option<EngineReport>>,
}

impl StepTally {
    /// A worker is done. A repeated answer counts once.
    pub(super) fn add(&mut self, worker: u32, report: Option<EngineReport>) {
        self.answered.entry(worker).or_insert(report);
    }

    /// How many workers are done.
    pub(super) fn count(&self) -> u32 {
        self.answered.len() as u32
    }

    /// What the engine is, after `Inspect`.
    pub(super) fn report(&self) -> EngineReport {
        EngineReport::of_all(self.answered.values().flatten())
    }
}
