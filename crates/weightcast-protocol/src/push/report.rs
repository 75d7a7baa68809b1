//! What a target says of itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Generation;
use crate::push::grant::PushGrant;
use crate::push::names::{PushNumber, SenderId, TargetId};

/// Where a target is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TargetState {
    /// Its memory is no version, and nobody may write it.
    #[default]
    Empty,
    /// It stops serving, since its memory is to be written.
    Pausing,
    /// Grants are open.
    Filling,
    /// All was written, every grant is closed, and the content is being compared with the version.
    Verifying,
    /// It holds the version of its last order, and may serve the version.
    Ready,
    /// Its memory is given away.
    Asleep,
}

impl TargetState {
    /// The state's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            TargetState::Empty => "empty",
            TargetState::Pausing => "pausing",
            TargetState::Filling => "filling",
            TargetState::Verifying => "verifying",
            TargetState::Ready => "ready",
            TargetState::Asleep => "asleep",
        }
    }
}

/// All that a target says of itself to a driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PushReport {
    /// The target.
    pub target: TargetId,
    /// The push of the newest order that was heard.
    pub push: PushNumber,
    /// That order's revision.
    pub revision: u64,
    /// The target's count of reports: the largest is the newest.
    pub sequence: u64,
    /// The generation of the memory.
    pub generation: Generation,
    /// Where the target is.
    pub state: TargetState,
    /// Parcels that were written.
    pub written: BTreeSet<u32>,
    /// Parcels whose content differed from the version when it was last compared, with those who had written them. They are
    /// to be written again.
    pub differing: BTreeMap<u32, SenderId>,
    /// The grants that are open.
    pub grants: Vec<PushGrant>,
}
