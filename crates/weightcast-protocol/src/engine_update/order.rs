//! What the driver tells a worker, and what the worker answers.

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::{FleetTransaction, UpdateAttempt};
use crate::engine_update::means::InstallMeans;
use crate::engine_update::report::EngineReport;
use crate::engine_update::step::{StepFailure, UpdateStep};
use crate::{Span, Version};

/// What a worker is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOrder {
    /// The order's number.
    pub attempt: UpdateAttempt,
    /// The life of the engine that the order is meant for: one that starts anew has another. `None`: whoever is there; only
    /// to ask.
    pub life: Option<u64>,
    /// The step.
    pub step: UpdateStep,
    /// The version that the step is about; of `Resume` the version that is to be served.
    pub version: Version,
    /// The version that the engine may go back to.
    pub old: Option<Version>,
    /// Where bytes land.
    pub means: InstallMeans,
    /// `Invalidate` keeps the caches of sequences that go on, and marks in each where the new version begins. Caches that a
    /// new sequence could begin with are forgotten even then.
    pub keep_caches: bool,
    /// How long the driver waits for the step, and says nothing else meanwhile.
    pub deadline: Span,
    /// The fleet's update that the order belongs to.
    pub transaction: Option<FleetTransaction>,
}

/// A worker's answer to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepAnswer {
    /// The step is done.
    Done,
    /// The step is not done, or not known to be.
    Failed(StepFailure),
    /// The answer to `Inspect`.
    Inspected(EngineReport),
}
