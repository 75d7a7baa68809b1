//! What an update is to be like.

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::{FleetTransaction, UpdateAttempt};
use crate::engine_update::course::course;
use crate::engine_update::means::{InstallMeans, PauseMode};
use crate::engine_update::step::UpdateStep;
use crate::{Safeguards, Span, Version};

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDeadlines {
    /// Steps that move bytes: `Fetch` and `Install`.
    pub bytes: Span,
    /// `Pause`: with [`PauseMode::Wait`] as long as sequences last.
    pub pause: Span,
    /// `PostProcess` and `Verify`, which look at all parameters.
    pub parameters: Span,
    /// All other steps: a word of the engine's.
    pub word: Span,
}

impl StepDeadlines {
    /// The deadline of a step.
    pub const fn of(&self, step: UpdateStep) -> Span {
        match step {
            UpdateStep::Fetch | UpdateStep::Install => self.bytes,
            UpdateStep::Pause => self.pause,
            UpdateStep::PostProcess | UpdateStep::Verify => self.parameters,
            _ => self.word,
        }
    }
}

impl Default for StepDeadlines {
    fn default() -> Self {
        Self {
            bytes: Span::from_secs(120),
            pause: Span::from_secs(60),
            parameters: Span::from_secs(30),
            word: Span::from_secs(10),
        }
    }
}

/// One update of one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateConfig {
    /// The number of the driver and of this machine; `number` grows with each order.
    pub attempt: UpdateAttempt,
    /// The engine's life, as it has said ([`EngineReport::life`]). `None` where it is only asked.
    ///
    /// [`EngineReport::life`]: crate::engine_update::EngineReport::life
    pub life: Option<u64>,
    /// Workers of the engine.
    pub workers: u32,
    /// The version that the engine may go back to: held whole, and still right to serve. `None`: the engine is not
    /// resumed after a failure.
    pub old: Option<Version>,
    /// The version to install.
    pub new: Version,
    /// The engine is paused already: by a driver that was lost, or since it has just started.
    pub paused: bool,
    /// Where the bytes land.
    pub means: InstallMeans,
    /// What becomes of sequences.
    pub mode: PauseMode,
    /// The bytes are fetched while the engine generates. Only with [`InstallMeans::Staged`].
    pub prefetch: bool,
    /// The fleet's update that this one is part of. The machine then stops before `Begin`, until it is told to proceed.
    pub transaction: Option<FleetTransaction>,
    /// Deadlines.
    pub deadlines: StepDeadlines,
    /// How often a failed install is repeated from staging, and how often a failed resume.
    pub retries: u32,
    /// Switched off by test rigs only.
    pub safeguards: Safeguards,
}

impl UpdateConfig {
    /// How long the update takes at most, without the time for which it waits to be told to proceed.
    pub fn bound(&self) -> Span {
        const END: [UpdateStep; 4] =
            [UpdateStep::Discard, UpdateStep::Verify, UpdateStep::Resume, UpdateStep::Inspect];
        let steps = course(self.means, self.prefetch).iter().chain(&END).chain(&END);
        let once = steps.fold(0u64, |sum, step| sum.saturating_add(self.deadlines.of(*step).0));
        Span(once.saturating_mul(u64::from(self.retries) + 1))
    }

    /// Whether the caches of sequences that go on outlive the update.
    pub fn keeps_caches(&self) -> bool {
        self.mode == PauseMode::Keep { mixed: true }
    }
}
