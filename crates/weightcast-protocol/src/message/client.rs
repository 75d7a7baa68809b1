//! Messages from sessions to the server.

use serde::{Deserialize, Serialize};

use super::{Announcement, Call, Open, ReadFailure};
use crate::{Attempt, Generation, Nonce, OpSeq, ShardSums, Span, Version};

/// From a session to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClientMessage {
    /// Opens or resumes a session.
    Open(Open),
    /// Announces the shard's part of its group to a server of a newer term, once the session is
    /// open there.
    Announce(Announcement),
    /// A call. Sent again with the same `seq` after a stream broke (G5).
    Call {
        /// The call's place in the group's sequence of calls, from 1.
        seq: OpSeq,
        /// Time left for the call when it was sent.
        deadline: Span,
        /// The call.
        call: Call,
    },
    /// The shard has digested what it published at `generation`: announced becomes sealed.
    Sealed {
        /// Generation of the publish.
        generation: Generation,
        /// The shard's digests.
        sums: ShardSums,
    },
    /// The shard has begun to read anew, and serves what it has so far. Once all shards of a group
    /// do so, other groups can read from it while it is being filled.
    Filling {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment at which the shard began anew.
        since: Attempt,
        /// Generation at which the shard serves, now and once committed.
        generation: Generation,
    },
    /// The shard has read and digested all its slices, and exposes them at `generation`.
    Prepared {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Generation at which the shard will serve once committed.
        generation: Generation,
        /// The shard's digests.
        sums: ShardSums,
    },
    /// The shard has copied the staged version into its memory, as
    /// [`Install`](super::ServerMessage::Install) said, and exposes it.
    Installed {
        /// The `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Generation at which the shard will serve once committed.
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
    /// The shard's read is so slow that another source would be better. Not an accusation: without
    /// a better source the read goes on.
    Slow {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that is read.
        attempt: Attempt,
        /// The source's shard with most bytes still to give, by its place in the assignment.
        shard: u32,
        /// The recent pace.
        bytes_per_s: u64,
    },
    /// The shard can't offload its copy of this version, as the server asked.
    OffloadFailed {
        /// The version.
        version: Version,
        /// The generation at which the copy was held when the server asked.
        generation: Generation,
        /// Why, for people; cut to [`crate::limits::DETAIL_CHARS`].
        reason: String,
    },
    /// The shard can't bring a version to its datacentre, as the server asked.
    SeedFailed {
        /// Number of the request.
        ask: u64,
    },
    /// The answer to a [`Challenge`](super::ServerMessage::Challenge).
    Proof {
        /// Generation at which the shard held the bytes, before and after it summed them.
        generation: Generation,
        /// Number of the challenge.
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
    /// Renews the lease as [`ClientMessage::Heartbeat`] does, and tells the progress of the shard's read
    /// for people. The server decides by the numbers only whether it is too late for a further source.
    Progress {
        /// The client's own clock, returned as it is (T1).
        sent_at: u64,
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that is read.
        attempt: Attempt,
        /// Bytes that have arrived, including bytes of earlier assignments that are kept.
        arrived: u64,
        /// Bytes of the shard's whole read.
        total: u64,
    },
}
