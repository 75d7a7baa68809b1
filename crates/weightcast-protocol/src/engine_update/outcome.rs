//! How an update ended, and what the engine is then.

use serde::{Deserialize, Serialize};

use crate::engine_update::report::EngineReport;
use crate::engine_update::step::{StepFailure, UpdateStep};
use crate::{Epoch, Span, Version};

/// What an engine serves that has loaded its weights by itself, before any driver has come. No run has this number.
pub const LOADED: Version = Version { epoch: Epoch(0), number: 0 };

/// What an engine is after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineState {
    /// Wholly what it was before.
    Old(Version),
    /// Wholly the new version.
    New(Version),
    /// Its parameters are no version. It does not serve, and is not resumed before it holds a version whole.
    Empty,
    /// Dead, or out of reach: nothing is known of it.
    Gone,
}

impl EngineState {
    /// The state's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            EngineState::Old(_) => "old",
            EngineState::New(_) => "new",
            EngineState::Empty => "empty",
            EngineState::Gone => "gone",
        }
    }
}

/// Why an update did not take its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpdateReason {
    /// A worker did not take the step.
    Failed(StepFailure),
    /// The step's deadline passed. What it may still do is fenced.
    Deadline,
    /// The engine died.
    Lost,
    /// The caller cancelled it.
    Cancelled,
    /// The fleet's update was aborted.
    Aborted,
    /// The fleet's verdict cannot be had in time. The engine stays paused, and finds out by itself.
    InDoubt,
}

impl UpdateReason {
    /// The reason's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            UpdateReason::Failed(failure) => failure.name(),
            UpdateReason::Deadline => "deadline",
            UpdateReason::Lost => "lost",
            UpdateReason::Cancelled => "cancelled",
            UpdateReason::Aborted => "aborted",
            UpdateReason::InDoubt => "in_doubt",
        }
    }

    /// Whether somebody else decides over the engine now.
    pub(super) fn is_superseded(self) -> bool {
        matches!(self, UpdateReason::InDoubt | UpdateReason::Failed(StepFailure::Fenced))
    }
}

/// How an update ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateOutcome {
    /// What the engine is.
    pub state: EngineState,
    /// Whether the engine generates.
    pub serving: bool,
    /// The step at which the update first left its course, and why; `None` if it went well.
    pub failure: Option<(UpdateStep, UpdateReason)>,
    /// What the engine said of itself when it was last asked, if it was.
    pub report: Option<EngineReport>,
    /// How long the engine was paused; if it still is, so far.
    pub paused: Span,
    /// How long all of it took.
    pub total: Span,
}

impl UpdateOutcome {
    /// Whether the engine now serves the new version.
    pub fn is_new(&self) -> bool {
        self.serving && matches!(self.state, EngineState::New(_))
    }

    /// Whether somebody else decides over the engine now: a later driver, or the engine itself. What the engine is
    /// was true when it was asked, and may have changed since.
    pub fn is_superseded(&self) -> bool {
        self.failure.is_some_and(|(_, reason)| reason.is_superseded())
    }
}
