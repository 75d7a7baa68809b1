//! How many bytes each sender still has to send, and which of several senders takes the next parcel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::push::names::SenderId;

/// Bytes that each sender has to send, to all targets together. Kept while targets come and go, so that a new target's
/// parcels go where there is room, and nobody else's move.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SenderLoads(BTreeMap<SenderId, u64>);

impl SenderLoads {
    /// The candidate with the least to send. Each `turn` begins at another candidate, so that equal loads do not all meet the
    /// first.
    pub(super) fn least(&self, candidates: &[SenderId], turn: u64) -> Option<SenderId> {
        let begin = turn.checked_rem(candidates.len() as u64)? as usize;
        let order = candidates[begin..].iter().chain(&candidates[..begin]);
        order.min_by_key(|sender| self.of(**sender)).copied()
    }

    /// What a sender has to send.
    pub(super) fn of(&self, sender: SenderId) -> u64 {
        self.0.get(&sender).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, sender: SenderId, bytes: u64) {
        let load = self.0.entry(sender).or_default();
        *load = load.saturating_add(bytes);
    }

    pub(super) fn take(&mut self, sender: SenderId, bytes: u64) {
        let left = self.of(sender).saturating_sub(bytes);
        if left == 0 {
            self.0.remove(&sender);
        } else {
            self.0.insert(sender, left);
        }
    }

    /// Bytes of all senders together.
    pub(super) fn sum(&self) -> u64 {
        self.0.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}
