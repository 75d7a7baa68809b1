//! A driver: one push after the other.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::Time;
use weightcast_protocol::push::{PushDriver, SenderId, TargetId};

/// A driver.
#[derive(Debug)]
pub(crate) struct PushingDriver {
    pub(crate) alive: bool,
    /// Its pushes so far.
    pub(crate) pushes: u64,
    pub(crate) machine: Option<PushDriver>,
    /// Versions that targets hold, as far as this driver knows.
    pub(crate) ready: BTreeMap<TargetId, u64>,
    /// Senders that the present push takes for holders.
    pub(crate) senders: BTreeSet<SenderId>,
    /// When each sender was last heard to hold no version.
    pub(crate) denied: BTreeMap<SenderId, Time>,
    /// When each target of the present push joined.
    pub(crate) joined: BTreeMap<TargetId, Time>,
    pub(crate) suspended_until: Time,
    /// After a push that failed somewhere it waits a little.
    pub(crate) rests_until: Time,
    /// Until then, what this driver does may last longer than it should.
    pub(crate) upset_at: Time,
}

impl PushingDriver {
    pub(crate) fn new() -> Self {
        Self {
            alive: true,
            pushes: 0,
            machine: None,
            ready: BTreeMap::new(),
            senders: BTreeSet::new(),
            denied: BTreeMap::new(),
            joined: BTreeMap::new(),
            suspended_until: Time(0),
            rests_until: Time(0),
            upset_at: Time(0),
        }
    }

    /// Whether it does anything now.
    pub(crate) fn acts(&self, now: Time) -> bool {
        self.alive && self.suspended_until <= now
    }
}
