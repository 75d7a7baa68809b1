//! What one target needs, and who could send it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::push::names::{SenderId, TargetId};

/// Copies of a plan that the same senders could write into one target: the unit that is routed, written and counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushParcel {
    /// Bytes of all copies.
    pub bytes: u64,
    /// Who holds them.
    pub holders: BTreeSet<SenderId>,
}

/// What one target needs: by the plan from the layouts of the senders to the layout of the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetNeeds {
    /// The target.
    pub target: TargetId,
    /// Its parcels; a parcel's number is its place here.
    pub parcels: Vec<PushParcel>,
}
