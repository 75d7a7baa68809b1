//! What sessions say to the server.

use super::{Announcement, Call, Open, ReadFailure};
use crate::{Attempt, Generation, Nonce, OpSeq, ShardSums, Span, Version};

/// From a session to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientMessage {
    /// Opens or resumes.
    Open(Open),
    /// Brings the shard's part of its group to a server of a newer term, once it is open there.
    Announce(Announcement),
    /// A call. Sent again with the same `seq` after a stream broke (G5).
    Call {
        /// Its place in the group's sequence of calls, from 1.
        seq: OpSeq,
        /// Time left for it when it was sent.
        deadline: Span,
        /// What is called.
        call: Call,
    },
    /// The shard has digested what it published at `generation`: announced becomes sealed.
    Sealed {
        /// Generation of the publish.
        generation: Generation,
        /// The shard's digests.
        sums: ShardSums,
    },
    /// The shard has begun to read anew, and serves what it has so far: with all its shards, the
    /// group can be read while it is being filled.
    Filling {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment with which it began anew.
        since: Attempt,
        /// Generation at which it serves, now and once committed.
        generation: Generation,
    },
    /// The shard has read and digested all its slices, and exposes them at `generation`.
    Prepared {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Generation at which it will serve once committed.
        generation: Generation,
        /// The shard's digests.
        sums: ShardSums,
    },
    /// The shard has copied what it read beside its memory into it, as
    /// [`Install`](super::ServerMessage::Install) said, and exposes it.
    Installed {
        /// The `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Generation at which it will serve once committed.
        generation: Generation,
    },
    /// Reading from the assigned source failed.
    ReadFailed {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that failed.
        attempt: Attempt,
        /// What was seen.
        failure: ReadFailure,
    },
    /// The shard reads, but so slowly that it had better read elsewhere. No accusation: if there is
    /// nothing better, it goes on.
    Slow {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that is read.
        attempt: Attempt,
        /// The source's shard that has most left to give, by its place in the assignment.
        shard: u32,
        /// What has come lately.
        bytes_per_s: u64,
    },
    /// The shard can't offload its copy of this version as it was asked to.
    OffloadFailed {
        /// The version.
        version: Version,
        /// The generation at which it was held when it was asked for.
        generation: Generation,
        /// Why, for people; cut to [`crate::limits::DETAIL_CHARS`].
        reason: String,
    },
    /// The shard can't bring a version to its datacentre as it was asked to.
    SeedFailed {
        /// What it was asked.
        ask: u64,
    },
    /// What was asked for by [`Challenge`](super::ServerMessage::Challenge).
    Proof {
        /// Generation at which the shard held the bytes, before and after it summed them.
        generation: Generation,
        /// Of the challenge.
        nonce: Nonce,
        /// The sum, over the elements that this shard counts for its group.
        sum: u64,
    },
    /// Renews the lease.
    Heartbeat {
        /// The client's own clock, returned as it is (T1).
        sent_at: u64,
    },
    /// Leaves the group: unpublishes and unregisters for the whole group.
    Close {
        /// Time left to drain readers.
        deadline: Span,
    },
}
