//! What a shard brings to a server of a newer term.

use crate::{ContentDigest, ExportId, Generation, OpSeq, ShardSums, Version};

/// What a shard tells a server of a newer term, so that its group goes on there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// The last call that was answered to it.
    pub answered: OpSeq,
    /// Moved when the shard lost its server: what it serves now, it serves at this one.
    pub generation: Generation,
    /// Its memory, if it is registered.
    pub registration: Option<Registration>,
    /// What the memory holds, unchanged since.
    pub held: Option<Holding>,
}

/// A shard's memory, as `register` declared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Name of its layout.
    pub layout: ContentDigest,
    /// Name under which its data port serves it.
    pub export: ExportId,
    /// Bytes held.
    pub bytes: u64,
}

/// A version in a shard's memory. No other than the one that the shard's ticket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The version.
    pub version: Version,
    /// Name of its logical tensors.
    pub catalog: ContentDigest,
    /// The shard's digests, once they are computed.
    pub sums: Option<ShardSums>,
    /// A server has refused the content: it is not to be shown again.
    pub refused: bool,
    /// `unpublish` was called: it is not to be shown again either.
    pub withdrawn: bool,
}
