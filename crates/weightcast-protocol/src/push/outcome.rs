//! How a push ended.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::push::names::{PushNumber, SenderId, TargetId};
use crate::{Span, Version};

/// How a push ended at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TargetEnd {
    /// It holds the version, and has said so.
    Ready,
    /// It left.
    Left,
    /// It died.
    Lost,
    /// It gave its memory away.
    Asleep,
    /// It was not heard for [`PushConfig::silence`](crate::push::PushConfig::silence).
    Silent,
    /// It did not hear the driver for a lease, and closed its grants.
    GaveUp,
    /// It took longer than [`PushConfig::deadline`](crate::push::PushConfig::deadline).
    Deadline,
    /// It obeys a later push.
    Superseded,
    /// Nobody who lives holds the parcels that are missing.
    NoHolder,
    /// Parcels differ from the version, whoever writes them.
    Differs,
    /// The caller did not want the push any more.
    Cancelled,
}

impl TargetEnd {
    /// The end's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            TargetEnd::Ready => "ready",
            TargetEnd::Left => "left",
            TargetEnd::Lost => "lost",
            TargetEnd::Asleep => "asleep",
            TargetEnd::Silent => "silent",
            TargetEnd::GaveUp => "gave_up",
            TargetEnd::Deadline => "deadline",
            TargetEnd::Superseded => "superseded",
            TargetEnd::NoHolder => "no_holder",
            TargetEnd::Differs => "differs",
            TargetEnd::Cancelled => "cancelled",
        }
    }
}

/// What became of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetOutcome {
    /// How the push ended there.
    pub end: TargetEnd,
    /// Parcels that were not written, as far as the driver knows, by the sender that was to write them last.
    pub missing: BTreeMap<SenderId, BTreeSet<u32>>,
    /// Parcels that were not written, and that nobody holds who lives.
    pub unheld: BTreeSet<u32>,
    /// How often a parcel moved from one sender to another.
    pub moved: u32,
    /// How long it took from the target's join on.
    pub took: Span,
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushResult {
    /// The push.
    pub push: PushNumber,
    /// The version.
    pub version: Version,
    /// Of all targets that took part.
    pub targets: BTreeMap<TargetId, TargetOutcome>,
}
