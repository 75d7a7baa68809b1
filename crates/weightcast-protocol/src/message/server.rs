//! Messages from the server to sessions.

use serde::{Deserialize, Serialize};

use super::{Answer, Assignment, Witnesses};
use crate::{Attempt, CallError, Generation, Nonce, OpSeq, Span, Ticket, Version};

/// From the server to a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServerMessage {
    /// The session is open.
    Opened {
        /// This server's term, the group that was joined and its run, in a form that the next
        /// server believes.
        ticket: Ticket,
        /// Length of the lease: `ttl` of T1.
        lease: Span,
    },
    /// The group's content has changed: replaces the ticket. Comes before the answer that reports
    /// the change.
    Vouched {
        /// The new ticket.
        ticket: Ticket,
    },
    /// The session could not be opened; nothing was changed.
    Refused {
        /// Why.
        error: CallError,
        /// Whether to try again until the deadline: for example, the shard's last process still has
        /// a lease.
        retry: bool,
    },
    /// This server is not active, or not any more. Another server of the list is, or none yet.
    Superseded,
    /// All shards of the group have announced alike: the group goes on in this server's term.
    Recovered,
    /// Read from this source. A higher attempt replaces a lower one.
    Assigned {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// Number of this assignment.
        attempt: Attempt,
        /// Bytes read since this attempt are good and kept; older bytes are void. So a shard that
        /// missed an assignment never keeps bytes that the missed assignment made void.
        since: Attempt,
        /// What to read, and from where.
        assignment: Assignment,
    },
    /// All shards have read the assigned version beside their memory, the version is verified, and
    /// the old copy has no readers. Fence, copy the version into the memory, and expose it.
    Install {
        /// The `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Time for the installation. It replaces the call's own deadline, which may be nearer.
        deadline: Span,
    },
    /// A call has ended.
    Answered {
        /// Number of the call.
        seq: OpSeq,
        /// The result.
        result: Result<Answer, CallError>,
    },
    /// All shards of the group have sealed what this shard published, and the content is accepted.
    Sealed {
        /// The generation that was published.
        generation: Generation,
    },
    /// What this shard published is refused and no longer served. Its memory must not change before
    /// `unpublish`. Every call fails with the error; `unpublish` does, too, but frees the memory.
    Fenced {
        /// The generation that was published.
        generation: Generation,
        /// Why it is refused.
        error: CallError,
        /// Where to look for the difference.
        witnesses: Box<Witnesses>,
    },
    /// The group holds the last copy of a retained version, and wants to give the copy up. Copy the
    /// memory aside, and open an offload replica with the copy ([`crate::server::offload_name`]).
    Offload {
        /// The version.
        version: Version,
        /// Generation at which the shard holds it.
        generation: Generation,
    },
    /// An `update` was answered as unchanged, and its version has to cross in the background. Open
    /// a seed replica with CPU memory of this shard's layout ([`crate::server::seed_name`]), and
    /// let it replicate the version.
    Seed {
        /// The version.
        version: Version,
        /// Number of this request, different for each request.
        ask: u64,
        /// How long the seed may take.
        deadline: Span,
    },
    /// Show that the memory holds the version's bytes: sum a sample of them under keys. Sample and
    /// keys are drawn from this number.
    Challenge {
        /// Generation at which the shard holds the bytes.
        generation: Generation,
        /// What the sample and its keys are drawn from.
        nonce: Nonce,
    },
    /// The offload or seed replica is not needed any more. Close, and free the memory.
    Release {
        /// Time for readers to finish.
        deadline: Span,
    },
    /// The group is gone. The session fences itself; every call fails with the error.
    Broken {
        /// Why.
        error: CallError,
    },
    /// The lease was renewed.
    HeartbeatAck {
        /// The time that the heartbeat carried.
        sent_at: u64,
    },
    /// The session has left, and has no readers any more.
    Closed,
}
