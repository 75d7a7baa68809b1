//! Sessions: which shard of which group each one is, and how long its lease runs.

use crate::server::stores::store::Store;
use crate::{Incarnation, SessionId, Time};

/// The sessions that are open, with or without a stream.
pub(in crate::server) type Sessions = Store<SessionId, SessionEntry>;

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
