//! What a group waits for, by the call that is pending.

use super::{WaitCause, WaitGraph};
use crate::Incarnation;
use crate::message::Call;
use crate::server::stores::group::Group;
use crate::server::stores::transaction::{Transaction, name_shards};

impl WaitGraph<'_> {
    /// What a group waits for; nothing if it makes no call and all its shards are here.
    pub(super) fn cause(self, incarnation: Incarnation) -> Option<WaitCause> {
        let group = self.of(incarnation).group;
        match group.active_call() {
            _ if group.over.is_some() => None,
            Some(call) => Some(self.call_cause(incarnation, call)),
            None if group.recovering => Some(recovery(group)),
            None if !group.complete() => Some(WaitCause::new(group.waits_to_open())),
            None => None,
        }
    }

    fn call_cause(self, incarnation: Incarnation, transaction: &Transaction) -> WaitCause {
        let caller = self.of(incarnation);
        let group = caller.group;
        if let Some(missing) = transaction.missing(group.num_shards) {
            return absent(group, transaction, missing);
        }
        match &transaction.call {
            _ if transaction.waits_for_version() => self.version_cause(incarnation),
            Call::Replicate { .. } | Call::Update { .. } => self.transfer_cause(incarnation),
            Call::Unpublish => self.unpublish_cause(incarnation),
            Call::Publish { .. } if caller.waits_for_digest() => {
                WaitCause::new("those of the last reference server who know the version's digest")
            }
            Call::Wait { until } => self.condition_cause(incarnation, *until),
            _ => WaitCause::new(format!("replica {}", group.replica)),
        }
    }
}

/// Some shards of the group have not made its call.
fn absent(group: &Group, transaction: &Transaction, missing: String) -> WaitCause {
    if !group.complete() {
        return WaitCause::new(group.waits_to_open());
    }
    let shards = (0..group.num_shards).filter(|shard| !transaction.arrived.contains_key(shard));
    let shards = shards.collect();
    WaitCause {
        shards,
        ..WaitCause::new(format!("{missing} of replica {} to call", group.replica))
    }
}

/// Some shards of the group have not come over from an earlier server.
fn recovery(group: &Group) -> WaitCause {
    let absent = |shard: &u32| group.members.get(shard).is_none_or(|m| m.announced.is_none());
    let absent: Vec<u32> = (0..group.num_shards).filter(absent).collect();
    let absent = name_shards(&absent).unwrap_or_default();
    let replica = &group.replica;
    WaitCause::new(format!(
        "{absent} of replica {replica} to come over from the last reference server"
    ))
    .fact("the replica breaks at the end of the recovery window if they do not")
}
