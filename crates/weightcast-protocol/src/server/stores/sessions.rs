//! Sessions: which shard of which group each session is, and how long its lease runs.

use serde::{Deserialize, Serialize};

use crate::server::stores::store::Store;
use crate::{Incarnation, SessionId, Time};

/// The sessions that are open, with or without a stream.
pub(in crate::server) type Sessions = Store<SessionId, SessionEntry>;

/// A shard in its group. Found once for each message, where it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct MemberId {
    pub(in crate::server) session: SessionId,
    pub(in crate::server) group: Incarnation,
    pub(in crate::server) shard: u32,
}

impl Sessions {
    /// The member that belongs to an open session.
    #[track_caller]
    pub(in crate::server) fn member(&self, session: SessionId) -> MemberId {
        let &SessionEntry { group, shard, .. } = self.of(&session);
        MemberId { session, group, shard }
    }
}

/// A session and its lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct SessionEntry {
    pub(in crate::server) group: Incarnation,
    pub(in crate::server) shard: u32,
    /// When the session is evicted, unless it renews.
    pub(in crate::server) lease_until: Time,
}

impl SessionEntry {
    pub(in crate::server) fn new(group: Incarnation, shard: u32) -> Self {
        Self { group, shard, lease_until: Time(0) }
    }
}
