//! Grants by name, and what is said of writes under them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::push::names::{PushNumber, SenderId, TargetId};
use crate::{Generation, Version};

/// The leave of a target for one sender to write named parcels, for one generation of the target's memory. The target and
/// the grant's number name the grant for ever; the transport's secret, which proves the sender, is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PushGrant {
    /// The push.
    pub push: PushNumber,
    /// Whose memory is written.
    pub target: TargetId,
    /// The target's count of grants.
    pub number: u64,
    /// The generation of the target's memory.
    pub generation: Generation,
    /// Who may write.
    pub sender: SenderId,
    /// The version whose bytes are to be written.
    pub version: Version,
    /// The parcels that may be written.
    pub parcels: BTreeSet<u32>,
}

/// A sender's word to a target: the writes of these parcels were answered, so the bytes are in the target's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ParcelsWritten {
    /// The target.
    pub target: TargetId,
    /// The grant's number.
    pub grant: u64,
    /// The sender.
    pub sender: SenderId,
    /// All parcels of the grant that were written so far.
    pub parcels: BTreeSet<u32>,
}
