//! What a shard announces to a server of a newer term.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{ContentDigest, ExportId, Generation, OpSeq, ShardSums, Version};

/// A shard's statement to a server of a newer term, so that its group goes on there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Announcement {
    /// The last call that the shard got an answer to.
    pub answered: OpSeq,
    /// The generation at which the shard serves now. It moved when the shard lost its server.
    pub generation: Generation,
    /// The shard's memory, if it is registered.
    pub registration: Option<Registration>,
    /// The content of the memory, unchanged since the server was lost.
    pub held: Option<Holding>,
    /// The versions that are kept for its group: the same on all shards of a group.
    pub retains: BTreeSet<Version>,
}

/// A shard's memory, as `register` declared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// Name of the layout.
    pub layout: ContentDigest,
    /// Name under which the data port serves the memory.
    pub export: ExportId,
    /// Bytes held.
    pub bytes: u64,
}

/// A version in a shard's memory: always the version on the shard's ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holding {
    /// The version.
    pub version: Version,
    /// Name of its logical tensors.
    pub catalog: ContentDigest,
    /// The shard's digests, once they are computed.
    pub sums: Option<ShardSums>,
    /// A server has refused the content: it must not be listed again.
    pub refused: bool,
    /// `unpublish` was called: the copy must not be listed again either.
    pub withdrawn: bool,
}
