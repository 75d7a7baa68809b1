//! What a handle has as a sender.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use weightcast_protocol::Sum;
use weightcast_protocol::push::{PushSender, SenderId, TargetId};

use super::early::EarlyGrants;
use super::word::GrantWord;

/// A grant by its target, and its number there.
pub(super) type GrantPlace = (TargetId, u64);

/// The sender of a handle.
#[derive(Default)]
pub(in crate::client) struct SendingRoom {
    pub(super) state: Mutex<SendingState>,
    /// Held by who reads the memory.
    pub(super) reading: RwLock<()>,
}

#[cfg(test)]
impl SendingRoom {
    /// As if a grant had come.
    pub(in crate::client) fn begin(&self) {
        let machine = PushSender::new(SenderId(1), weightcast_protocol::Safeguards::default());
        self.state.lock().expect("no panic while held").machine = Some((SenderId(1), machine));
    }

    /// Whether nothing is written from here before another grant comes.
    pub(in crate::client) fn is_over(&self) -> bool {
        self.state.lock().expect("no panic while held").machine.is_none()
    }

    /// The newest version that may have been pushed from here.
    pub(in crate::client) fn newest(&self) -> Option<weightcast_protocol::Version> {
        self.state.lock().expect("no panic while held").early.newest
    }
}

#[derive(Default)]
pub(super) struct SendingState {
    /// Of the memory that is registered now.
    pub(super) machine: Option<(SenderId, PushSender)>,
    pub(super) uses: BTreeMap<GrantPlace, GrantUse>,
    /// Grants for a version that is not held yet.
    pub(super) early: EarlyGrants,
    /// Grants that no thread has begun with.
    pub(super) waiting: VecDeque<GrantPlace>,
    pub(super) writers: usize,
    /// Raised to end the writes that are under way.
    pub(super) cancel: Arc<AtomicBool>,
}

/// A grant that is being used.
pub(super) struct GrantUse {
    pub(super) word: Arc<GrantWord>,
    /// Of the parcels that were written.
    pub(super) sums: BTreeMap<u32, Sum>,
}
