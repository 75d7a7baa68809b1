//! How a session begins: who opens it, as what, and where it runs.

use serde::{Deserialize, Serialize};

use crate::role::Role;
use crate::ticket::TicketOwner;
use crate::{SessionId, Ticket};

/// Whether opening starts a new training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EpochPolicy {
    /// Join the model's present run.
    Current,
    /// Start a new run: its versions are newer than all versions published before (F16).
    New,
}

/// Where a shard runs: labels for the choice of a source. The server reads nothing else into them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Datacentre, empty if there is only one.
    pub datacentre: String,
    /// Host.
    pub host: String,
    /// The worker may be taken away at any time; its copy never counts for retention.
    pub spot: bool,
}

/// First message on every stream: opens a session, or resumes it after the stream broke.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Open {
    /// Version of this protocol that the client speaks ([`crate::PROTOCOL`]).
    pub protocol: u32,
    /// Names this process life.
    pub session: SessionId,
    /// The model.
    pub model: String,
    /// The replica that this shard is a part of.
    pub replica: String,
    /// Number of this shard, from 0.
    pub shard: u32,
    /// Number of shards of the replica.
    pub num_shards: u32,
    /// What the session may do.
    pub role: Role,
    /// Whether this group starts a new run.
    pub epoch: EpochPolicy,
    /// Of a trainer: how many of the newest versions are retained. The largest of a run counts.
    pub retain: u32,
    /// Whether an `update` is answered at once rather than read from another datacentre, while the
    /// version crosses in the background. The same on all shards of a group.
    pub offload_seeding: bool,
    /// Where the shard runs.
    pub location: Location,
    /// `host:port` of this shard's data port.
    pub data_address: String,
    /// The last ticket that a server gave the session; `None` at first.
    pub ticket: Option<Ticket>,
    /// Whether the session is still a member of the group on its ticket. Otherwise only the
    /// ticket's term counts.
    pub rejoins: bool,
    /// No other server of the client's list is active, so a passive server may take over.
    pub activate: bool,
}

impl Open {
    /// The ticket of a session that brings its group over.
    pub(crate) fn past(&self) -> Option<&Ticket> {
        self.ticket.as_ref().filter(|_| self.rejoins)
    }
}

impl<'a> From<&'a Open> for TicketOwner<'a> {
    fn from(open: &'a Open) -> Self {
        Self {
            session: open.session,
            model: &open.model,
            replica: &open.replica,
            shard: open.shard,
            num_shards: open.num_shards,
            role: open.role,
        }
    }
}
