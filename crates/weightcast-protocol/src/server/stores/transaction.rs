//! A group transaction: one call of all shards of a group (§4.4 of the paper; G1 to G5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Answer, Assignment, Call};
use crate::server::stores::progress::ShardProgress;
use crate::{
    Attempt, CallError, Condition, ContentDigest, Generation, Incarnation, OpSeq, Selector,
    ShardSums, Time, Version,
};

/// One call of a group: the shards' calls, and the result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Transaction {
    pub(in crate::server) seq: OpSeq,
    /// The first shard's call, which all others must repeat (G2).
    pub(in crate::server) call: Call,
    pub(in crate::server) first_shard: u32,
    pub(in crate::server) started: Time,
    /// When it ends, whatever the state: the earliest that a shard gave, so that every shard has
    /// the answer in time and none ends the call by itself (G1, L1).
    pub(in crate::server) deadline: Time,
    /// Calls by shard.
    pub(in crate::server) arrived: BTreeMap<u32, Call>,
    /// Shards that have made a later call, and so will not ask for this answer again.
    pub(in crate::server) passed: u32,
    /// An answer that was decided before all shards had called, kept back until they have. A shard
    /// that calls something else makes the call fail on all shards (G2).
    pub(in crate::server) decided: Option<Answer>,
    /// The answer, the same for every shard whenever it asks (G1).
    pub(in crate::server) result: Option<Result<Answer, CallError>>,
    /// Its place in the queue, while it waits.
    pub(in crate::server) place: Option<u64>,
    /// Set for `replicate` and `update`.
    pub(in crate::server) transfer: Option<GroupTransfer>,
}

/// A `replicate` or `update` on its way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct GroupTransfer {
    /// What the selector meant when it was resolved, once (G3).
    pub(in crate::server) version: Option<Version>,
    pub(in crate::server) phase: Phase,
    pub(in crate::server) attempt: Attempt,
    /// The attempt at which the shards began from nothing. Bytes read since then are kept.
    pub(in crate::server) since: Attempt,
    /// The bytes read so far were proved bad: the shards begin anew with the next attempt.
    pub(in crate::server) void: bool,
    /// Shards that serve what they have read since `since`, and at which generation.
    pub(in crate::server) filling: BTreeMap<u32, Generation>,
    /// Progress of each shard that has reported.
    pub(in crate::server) progress: BTreeMap<u32, ShardProgress>,
    /// What was assigned last; set as long as shards may be reading.
    pub(in crate::server) assignment: Option<Assignment>,
    /// Shards that have read the current attempt.
    pub(in crate::server) prepared: BTreeMap<u32, (Generation, ShardSums)>,
    /// A staged update: the group keeps its copy until all shards have read the version, verified.
    pub(in crate::server) staged: bool,
    /// The old copy was given up for the version that the shards have read beside it.
    pub(in crate::server) gave_up: bool,
    /// Shards that have installed the version, and at which generation they serve it.
    pub(in crate::server) installed: BTreeMap<u32, Generation>,
    /// How often the transfer has left a slow source.
    pub(in crate::server) moves: u32,
    /// How often each source has failed this transfer.
    pub(in crate::server) failures: BTreeMap<Incarnation, u32>,
    /// What the transfer fails with if no source is left.
    pub(in crate::server) last_error: Option<CallError>,
}

/// How far the shards of a group were when their transfer ran out of time (`kept`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Kept {
    pub(in crate::server) version: Version,
    pub(in crate::server) staged: bool,
    /// The last assignment; the next one is numbered after it.
    pub(in crate::server) attempt: Attempt,
    pub(in crate::server) since: Attempt,
}

/// How far a transfer is. Its sources stand in the read edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) enum Phase {
    /// Waits for the version, the other shards, or a free source.
    #[default]
    Waiting,
    /// The readers of the group's old copy finish. A source is granted already; in a staged update
    /// the whole version is read and verified already.
    Draining,
    /// The shards read; the group holds nothing, or its old copy if the update is staged.
    Reading,
    /// The shards install what they have read; the group holds nothing.
    Installing,
}

impl GroupTransfer {
    /// The last assignment. Panics if the transfer has none.
    #[track_caller]
    pub(in crate::server) fn assigned(&self) -> &Assignment {
        self.assignment.as_ref().expect("set while reading")
    }

    /// The version that the selector meant. Panics if none is chosen yet.
    #[track_caller]
    pub(in crate::server) fn resolved(&self) -> Version {
        self.version.expect("a source is chosen for a version")
    }

    /// Whether shards on one host may have brought each other what was read: they do until bytes were wrong.
    pub(in crate::server) fn shared(&self) -> bool {
        self.since == Attempt::FIRST
    }

    /// Whether what was read may have come from several sources.
    pub(in crate::server) fn resumed(&self) -> bool {
        self.since != self.attempt
    }
}

impl Transaction {
    /// A call that the first shard makes.
    pub(in crate::server) fn new(
        seq: OpSeq,
        call: Call,
        first_shard: u32,
        started: Time,
        deadline: Time,
    ) -> Self {
        Self {
            seq,
            call,
            first_shard,
            started,
            deadline,
            arrived: BTreeMap::new(),
            passed: 0,
            decided: None,
            result: None,
            place: None,
            transfer: None,
        }
    }

    /// The transfer of this call. Panics unless the call is a transfer.
    #[track_caller]
    pub(in crate::server) fn as_transfer(&self) -> &GroupTransfer {
        self.transfer.as_ref().expect("the call is a transfer")
    }

    /// The same, to change it.
    #[track_caller]
    pub(in crate::server) fn as_transfer_mut(&mut self) -> &mut GroupTransfer {
        self.transfer.as_mut().expect("the call is a transfer")
    }

    /// Whether all shards of the group have made it.
    pub(in crate::server) fn is_whole(&self, num_shards: u32) -> bool {
        self.arrived.len() == num_shards as usize
    }

    /// Whether it is an `update`.
    pub(in crate::server) fn is_update(&self) -> bool {
        matches!(self.call, Call::Update { .. })
    }

    /// The selector of a call that waits for a version.
    pub(in crate::server) fn selector(&self) -> Option<Selector> {
        match self.call {
            Call::Replicate { selector }
            | Call::Update { selector, .. }
            | Call::Describe { selector }
            | Call::Retain { selector }
            | Call::Wait { until: Condition::Available(selector) } => Some(selector),
            _ => None,
        }
    }

    /// The selector of a transfer.
    #[track_caller]
    pub(in crate::server) fn as_selector(&self) -> Selector {
        self.selector().expect("transfers have one")
    }

    /// The version that a transfer would read if it had a source, once all shards are there.
    pub(in crate::server) fn wants(&self, num_shards: u32) -> Option<Version> {
        let transfer = self.transfer.as_ref().filter(|t| t.phase == Phase::Waiting)?;
        transfer.version.filter(|_| self.is_whole(num_shards))
    }

    /// The layouts that a pending call of `register` names.
    pub(in crate::server) fn pinned(&self) -> impl Iterator<Item = ContentDigest> {
        let pending = self.result.is_none();
        self.arrived.values().filter_map(move |call| match call {
            Call::Register { layout, .. } if pending => Some(*layout),
            _ => None,
        })
    }

    /// The shards that have not made the call, for people: `shards 1, 3`.
    pub(in crate::server) fn missing(&self, num_shards: u32) -> Option<String> {
        let missing: Vec<u32> =
            (0..num_shards).filter(|shard| !self.arrived.contains_key(shard)).collect();
        name_shards(&missing)
    }
}

/// `shard 1`, `shards 1, 3`, `shards 1, 2, 3 and 7 more`; `None` if there are none.
pub(in crate::server) fn name_shards(shards: &[u32]) -> Option<String> {
    const NAMED: usize = 8;
    let plural = if shards.len() == 1 { "shard" } else { "shards" };
    let names: Vec<String> = shards.iter().take(NAMED).map(u32::to_string).collect();
    let more = match shards.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!shards.is_empty()).then(|| format!("{plural} {}{more}", names.join(", ")))
}

/// Whether two shards' calls are the same: kind and arguments, except where these may differ (G2).
pub(in crate::server) fn same_call(a: &Call, b: &Call) -> bool {
    match (a, b) {
        (Call::Register { .. }, Call::Register { .. }) => true,
        (Call::Decline { .. }, _) | (_, Call::Decline { .. }) => true,
        // One shard knows its shapes, another looks them up first. Afterwards all register
        // together.
        (Call::Register { .. }, other) | (other, Call::Register { .. }) => looks_up(other),
        // Different catalogs are refused later, with an error that says more.
        (Call::Publish { version: a, .. }, Call::Publish { version: b, .. }) => a == b,
        _ => a == b,
    }
}

/// Whether a call looks up what the newest version holds.
pub(in crate::server) fn looks_up(call: &Call) -> bool {
    matches!(call, Call::Describe { selector: Selector::Latest })
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
