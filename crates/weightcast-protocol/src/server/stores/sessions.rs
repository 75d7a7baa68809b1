//! Sessions: which shard of which group each one is, and how long its lease runs.

use crate::server::stores::store::Store;
use crate::{Incarnation, SessionId, Time};

/// The sessions that are open, with or without a stream.
pub(in crate::server) type Sessions = Store<SessionId, SessionEntry>;

/// A member of a group: which shard a session is. Found once, where a message comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct MemberId {
    pub(in crate::server) session: SessionId,
    pub(in crate::server) group: Incarnation,
    pub(in crate::server) shard: u32,
}

impl Sessions {
    /// The member that an open session is.
    #[track_caller]
    pub(in crate::server) fn member(&self, session: SessionId) -> MemberId {
        let &SessionEntry { group, shard, .. } = self.of(&session);
        MemberId { session, group, shard }
    }
}

/// A session and its lease.
#[derive(Clone, Debug)]
pub(in crate::server) struct SessionEntry {
    pub(in crate::server) group: Incarnation,
    pub(in crate::server) shard: u32,
    /// The session is evicted then, unless it renews.
    pub(in crate::server) lease_until: Time,
}

impl SessionEntry {
    pub(in crate::server) fn new(group: Incarnation, shard: u32) -> Self {
        Self { group, shard, lease_until: Time(0) }
    }
}
