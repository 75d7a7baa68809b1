//! What the server says to sessions.

use super::{Answer, Assignment, Witnesses};
use crate::{Attempt, CallError, Generation, Nonce, OpSeq, Span, Ticket, Version};

/// From the server to a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerMessage {
    /// The session is open.
    Opened {
        /// This server's term, the group that was joined and its run, for the next server to believe.
        ticket: Ticket,
        /// Length of the lease: `ttl` of T1.
        lease: Span,
    },
    /// What the group holds has changed: replaces the ticket. Comes before the answer that says so.
    Vouched {
        /// The new ticket.
        ticket: Ticket,
    },
    /// The session could not be opened; nothing was changed. `retry`: it may work later.
    Refused {
        /// Why.
        error: CallError,
        /// Whether to try again until the deadline (the shard's last process still has a lease).
        retry: bool,
    },
    /// This server is not active, or not any more: another one of the list is, or none yet.
    Superseded,
    /// All shards of the group have announced the same: it goes on in this server's term.
    Recovered,
    /// Read from this source. A higher attempt replaces a lower one.
    Assigned {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// Number of this assignment.
        attempt: Attempt,
        /// What was read from this attempt on is good, and kept; all before it is void. So a shard
        /// that missed an assignment never keeps what another one made void.
        since: Attempt,
        /// What to read and where.
        assignment: Assignment,
    },
    /// All shards have read the assigned version beside their memory, it is verified, and nobody
    /// reads the old one any more: fence, copy it into the memory, and expose that.
    Install {
        /// The `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Time for it; the call's own deadline may be nearer, and does not count any more.
        deadline: Span,
    },
    /// A call has ended.
    Answered {
        /// Which.
        seq: OpSeq,
        /// How.
        result: Result<Answer, CallError>,
    },
    /// All shards of the group have sealed what this one published, and it is accepted.
    Sealed {
        /// The generation that was published.
        generation: Generation,
    },
    /// What this shard published is no longer served; its memory is still not to be changed
    /// before `unpublish`. Calls fail with the error, `unpublish` too, which frees the memory.
    Fenced {
        /// The generation that was published.
        generation: Generation,
        /// Why.
        error: CallError,
        /// Where to look for the difference.
        witnesses: Box<Witnesses>,
    },
    /// The group holds the last copy of a retained version, and wants to give it up: copy the
    /// memory aside, and open an offload replica with it ([`crate::server::offload_name`]).
    Offload {
        /// The version.
        version: Version,
        /// Generation at which the shard holds it.
        generation: Generation,
    },
    /// An `update` was answered as unchanged, and what it would have read is to cross in the
    /// background: open a seed replica with CPU memory of this shard's layout
    /// ([`crate::server::seed_name`]), and let it replicate the version.
    Seed {
        /// The version.
        version: Version,
        /// Tells this from any other time that this group was asked.
        ask: u64,
        /// How long it may take.
        deadline: Span,
    },
    /// Show that the memory holds the bytes that it is said to: sum a sample of them under keys, both
    /// drawn from this number.
    Challenge {
        /// Generation at which the shard holds them.
        generation: Generation,
        /// What the sample and its keys are drawn from.
        nonce: Nonce,
    },
    /// To an offload or seed replica: it is not needed any more. Close, and free the memory.
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
        /// As it was sent.
        sent_at: u64,
    },
    /// The session has left; nobody reads from it any more.
    Closed,
}
