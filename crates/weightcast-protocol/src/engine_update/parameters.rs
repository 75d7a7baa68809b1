//! What the live parameters of a worker hold, and what has been done since they were written.

use serde::{Deserialize, Serialize};

use crate::Version;
use crate::engine_update::step::UpdateStep;

/// The live parameters of one worker: ready once all that follows an install is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LiveParameters {
    /// The version whose bytes are all there.
    whole: Option<Version>,
    processed: bool,
    verified: bool,
    invalidated: bool,
    stamp: Option<Version>,
}

impl LiveParameters {
    /// What an engine has that loaded a version when it started: nobody has compared it yet.
    pub(super) fn loaded(version: Version) -> Self {
        let stamp = Some(version);
        Self { whole: stamp, processed: true, verified: false, invalidated: true, stamp }
    }

    /// The version whose bytes should be there, compared or not.
    pub(super) fn held(&self) -> Option<Version> {
        self.whole.filter(|version| self.stamp == Some(*version))
    }

    /// The memory was given away, and may not be what it was.
    pub(super) fn unverified(&mut self) {
        self.verified = false;
    }

    /// The version that may be served.
    pub(super) fn ready(&self) -> Option<Version> {
        self.held().filter(|_| self.processed && self.verified && self.invalidated)
    }

    /// The version that tokens are stamped with.
    pub(super) fn stamp(&self) -> Option<Version> {
        self.stamp
    }

    /// Bytes may be written from now on: whatever was there is no version any more.
    pub(super) fn torn(&mut self) {
        let stamp = self.stamp;
        *self = Self { stamp, ..Self::default() };
    }

    /// Whether a step that follows an install is right now.
    pub(super) fn allows(&self, step: UpdateStep, version: Version) -> bool {
        let whole = self.whole == Some(version);
        match step {
            UpdateStep::PostProcess => whole,
            UpdateStep::Verify => whole && self.processed,
            UpdateStep::Stamp => whole && self.verified && self.invalidated,
            _ => true,
        }
    }

    /// A step that follows an install begins.
    pub(super) fn begin(&mut self, step: UpdateStep) {
        match step {
            UpdateStep::PostProcess => (self.processed, self.verified) = (false, false),
            UpdateStep::Verify => self.verified = false,
            _ => {}
        }
    }

    /// A step is done.
    pub(super) fn finish(&mut self, step: UpdateStep, version: Version) {
        match step {
            UpdateStep::Fetch | UpdateStep::Install => self.whole = Some(version),
            UpdateStep::PostProcess => self.processed = true,
            UpdateStep::Verify => self.verified = true,
            UpdateStep::Invalidate => self.invalidated = true,
            UpdateStep::Stamp => self.stamp = Some(version),
            _ => {}
        }
    }
}
