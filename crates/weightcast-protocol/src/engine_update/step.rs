//! The steps of an update, and why one may fail.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One step of an update. All workers of an engine take a step before the next step is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UpdateStep {
    /// Compare layouts: can this engine take this version?
    Negotiate,
    /// Bring the bytes, and compare their digests. Staged: beside the live parameters. In place: into them.
    Fetch,
    /// Stop generating.
    Pause,
    /// Make the parameters ready to be written.
    Begin,
    /// Copy the staged bytes into the live parameters.
    Install,
    /// What the engine derives from loaded weights: layouts of kernels, scales, absorbed matrices.
    PostProcess,
    /// Compare what the live parameters hold now with what the version is.
    Verify,
    /// Forget caches that were computed with other weights; of sequences that go on, only if the order says so.
    Invalidate,
    /// Tell the engine which version it holds.
    Stamp,
    /// Generate again.
    Resume,
    /// On the way back: forget what was staged, and close what `Begin` opened. Where the order has no old version, the fleet's
    /// update is forgotten too: the engine is out of the fleet.
    Discard,
    /// Ask the workers what they are. Changes nothing, but orders before this one have no effect any more.
    Inspect,
}

impl UpdateStep {
    /// Every step.
    pub const ALL: [UpdateStep; 12] = [
        UpdateStep::Negotiate,
        UpdateStep::Fetch,
        UpdateStep::Pause,
        UpdateStep::Begin,
        UpdateStep::Install,
        UpdateStep::PostProcess,
        UpdateStep::Verify,
        UpdateStep::Invalidate,
        UpdateStep::Stamp,
        UpdateStep::Resume,
        UpdateStep::Discard,
        UpdateStep::Inspect,
    ];

    /// The step's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            UpdateStep::Negotiate => "negotiate",
            UpdateStep::Fetch => "fetch",
            UpdateStep::Pause => "pause",
            UpdateStep::Begin => "begin",
            UpdateStep::Install => "install",
            UpdateStep::PostProcess => "post_process",
            UpdateStep::Verify => "verify",
            UpdateStep::Invalidate => "invalidate",
            UpdateStep::Stamp => "stamp",
            UpdateStep::Resume => "resume",
            UpdateStep::Discard => "discard",
            UpdateStep::Inspect => "inspect",
        }
    }
}

impl fmt::Display for UpdateStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a worker did not take a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepFailure {
    /// The layouts do not fit.
    Layouts,
    /// The source of the bytes was lost.
    Source,
    /// The bytes are not the version's.
    Digest,
    /// The engine's own code failed.
    Engine,
    /// The engine sleeps: its memory is given away.
    Asleep,
    /// A newer order was heard.
    Fenced,
    /// The order is meant for another life of the engine.
    OtherLife,
    /// The worker is not in a state in which the step is right.
    OutOfOrder,
}

impl StepFailure {
    /// Every failure.
    pub const ALL: [StepFailure; 8] = [
        StepFailure::Layouts,
        StepFailure::Source,
        StepFailure::Digest,
        StepFailure::Engine,
        StepFailure::Asleep,
        StepFailure::Fenced,
        StepFailure::OtherLife,
        StepFailure::OutOfOrder,
    ];

    /// The failure of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.name() == name)
    }

    /// The failure's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            StepFailure::Layouts => "layouts",
            StepFailure::Source => "source",
            StepFailure::Digest => "digest",
            StepFailure::Engine => "engine",
            StepFailure::Asleep => "asleep",
            StepFailure::Fenced => "fenced",
            StepFailure::OtherLife => "other_life",
            StepFailure::OutOfOrder => "out_of_order",
        }
    }
}
