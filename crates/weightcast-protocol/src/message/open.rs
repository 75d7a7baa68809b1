//! How a session begins: who opens it, as what, and where it runs.

use crate::role::Role;
use crate::ticket::TicketOwner;
use crate::{SessionId, Ticket};

/// Whether opening starts a new training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpochPolicy {
    /// Join the run that there is.
    Current,
    /// Start a new run: every version published from now on is newer than all before (F16).
    New,
}

/// Where a shard runs. Labels for the choice of a source; the server reads nothing else into them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// Datacentre, empty if there is only one.
    pub datacentre: String,
    /// Host.
    pub host: String,
    /// May be taken away at any time; never counts for retention.
    pub spot: bool,
}

/// First message on every stream: opens a session, or resumes it after the stream broke.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    /// Version of this protocol that the client speaks ([`crate::PROTOCOL`]).
    pub protocol: u32,
    /// Names this process life.
    pub session: SessionId,
    /// The model.
    pub model: String,
    /// The replica that this shard is a part of.
    pub replica: String,
    /// Which part, from 0.
    pub shard: u32,
    /// Of how many.
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
    /// Where it runs.
    pub location: Location,
    /// `host:port` of this shard's data port.
    pub data_address: String,
    /// What the last server that it was open at has given it, none at first.
    pub ticket: Option<Ticket>,
    /// Whether it is still a member of the group that the ticket names; else only its term counts.
    pub rejoins: bool,
    /// No other server of the client's list is active: one that is not may take over.
    pub activate: bool,
}

impl Open {
    /// The ticket of a session that brings its group with it.
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
