//! What the driver tells a target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::push::names::{PushNumber, SenderId, TargetId};
use crate::{Span, Version};

/// The driver's word to a target. An order says all that is to be, not what changes: the newest order counts, and an order
/// that comes again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PushOrder {
    /// The push.
    pub push: PushNumber,
    /// Whom the order is meant for.
    pub target: TargetId,
    /// The driver's count of changes of this target's routes.
    pub revision: u64,
    /// The version that is pushed.
    pub version: Version,
    /// What is to be.
    pub command: PushCommand,
    /// How long grants stay open from the order's arrival on, unless the driver is heard again.
    pub lease: Span,
}

/// What is to be at a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PushCommand {
    /// Take the version in.
    Fill {
        /// Who is to write each parcel: of all parcels, of those that were written too.
        routes: BTreeMap<u32, SenderId>,
    },
    /// The push is over here: close all grants. The memory is no version then, unless the target was ready.
    Dismiss,
}

impl PushOrder {
    /// By push first: a later push takes the place of an earlier one.
    pub(super) const fn number(&self) -> (PushNumber, u64) {
        (self.push, self.revision)
    }
}
