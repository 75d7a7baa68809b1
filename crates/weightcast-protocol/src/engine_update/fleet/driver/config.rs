//! What a driver's updates are to be like, and how its work ends.

use serde::{Deserialize, Serialize};

use crate::engine_update::config::StepDeadlines;
use crate::engine_update::means::{InstallMeans, PauseMode};
use crate::{Safeguards, Span};

/// What all updates of a driver have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverConfig {
    /// Drawn by this driver's process.
    pub key: u64,
    /// All engines, or none. Otherwise each engine by itself.
    pub fleet: bool,
    /// Where bytes land; in a fleet always beside the live parameters.
    pub means: InstallMeans,
    /// What becomes of sequences.
    pub mode: PauseMode,
    /// The bytes are fetched while engines generate. Only with [`InstallMeans::Staged`].
    pub prefetch: bool,
    /// Deadlines of steps.
    pub deadlines: StepDeadlines,
    /// How often a failed install is repeated from staging, and how often a failed resume.
    pub retries: u32,
    /// How long all engines together may prepare.
    pub prepare: Span,
    /// How long the register may be out of reach for a verdict.
    pub decide: Span,
    /// How long the register, or an engine that is asked what it is, may be out of reach before the work is given up.
    pub reach: Span,
    /// How long to wait before the register is asked again.
    pub ask_every: Span,
    /// Switched off by test rigs only.
    pub safeguards: Safeguards,
}

/// How a driver's work for a version ended. What became of engines, the outputs before say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverEnd {
    /// What can be done was done.
    Done,
    /// No engine is awake.
    NobodyAwake,
    /// Another driver drives these engines now. Whoever wants to drive them again has to start anew.
    Superseded,
    /// These engines do not say what they are, and are not known to be dead. They may be serving, so nothing was begun.
    OutOfReach {
        /// Their numbers.
        engines: Vec<u32>,
    },
    /// The register does not answer. Engines that stand still go on once a driver comes that reaches it.
    RegisterAway,
    /// The caller did not want the version any more, and nothing had begun.
    Cancelled,
}
