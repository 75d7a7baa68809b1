//! T4: the report of one reader costs its source that reader and nothing more. A copy is fenced
//! only on the word of two replicas, and never the last copy of its version. A report evicts no
//! group.

mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::server::{ModelSnapshot, ReadEdge, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Time, Version};

use super::{Checker, Fact};
use crate::books::retained::{is_seed, same_life};

pub(super) use reports::{Accusers, VoidReports};

#[derive(Default)]
pub(super) struct TwoAccusers {
    before: Option<Rc<Snapshot>>,
    /// For each copy, the replicas that lost it as a source in an event that had an accusation.
    accusers: BTreeMap<(Incarnation, Version), BTreeSet<String>>,
    /// The group whose report on a read is the cause of this event.
    reports: Option<Incarnation>,
}

impl Checker for TwoAccusers {
    fn name(&self) -> &'static str {
        "T4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                let report = matches!(
                    message,
                    ClientMessage::Prepared { .. } | ClientMessage::ReadFailed { .. }
                );
                self.reports = who.incarnation.filter(|_| report);
                None
            }
            Fact::Books(after) => {
                let reports = self.reports.take();
                let before = self.before.replace(Rc::clone(after))?;
                if after.counters.accusations > before.counters.accusations {
                    self.note_accusers(&before, after);
                }
                after.models.iter().find_map(|(name, model)| {
                    let old = before.models.get(name)?;
                    evicted(old, model, reports).or_else(|| self.fenced(&before, after, old, model))
                })
            }
            _ => None,
        }
    }
}

impl TwoAccusers {
    /// A reader that lost its source in this event may have accused it. A reader that drew from
    /// several sources cannot tell which was wrong, and accuses none.
    fn note_accusers(&mut self, before: &Snapshot, after: &Snapshot) {
        let edges = |books: &Snapshot| -> Vec<_> {
            books.models.values().flat_map(|model| model.edges.clone()).collect()
        };
        let (was, now) = (edges(before), edges(after));
        let alone = |edge: &ReadEdge| {
            was.iter().filter(|other| other.reader_life == edge.reader_life).count() == 1
        };
        for edge in was.iter().filter(|edge| !now.contains(edge) && alone(edge)) {
            let copy = (edge.source_life, edge.version);
            self.accusers.entry(copy).or_default().insert(edge.reader.clone());
        }
    }

    /// A copy that was fenced on the word of fewer than two replicas, or as the last of its
    /// version.
    fn fenced(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        old: &ModelSnapshot,
        new: &ModelSnapshot,
    ) -> Option<String> {
        let accused = after.counters.accused_fenced - before.counters.accused_fenced;
        let fenced = new.replicas.iter().filter(|replica| {
            let was = same_life(old, replica.incarnation).map(|old| old.state);
            replica.state == ReplicaState::Fenced && was == Some(ReplicaState::Sealed)
        });
        let few = fenced.filter_map(|replica| {
            let version = replica.version?;
            let accusers = self.accusers.get(&(replica.incarnation, version));
            let accusers = accusers.map_or(0, BTreeSet::len);
            let holders = old.versions.get(&version).map_or(0, Vec::len);
            (accusers < 2 || holders < 2).then(|| {
                let name = &replica.name;
                format!("{name} was fenced by {accusers}, of {holders} who hold {version}")
            })
        });
        // Other copies may have been fenced in the same event for their own digests; this looks
        // only at an event in which the server fenced accused copies.
        few.take(accused as usize).next()
    }
}

/// A group that ended because of another group's report.
fn evicted(
    before: &ModelSnapshot,
    after: &ModelSnapshot,
    reports: Option<Incarnation>,
) -> Option<String> {
    let reports = reports?;
    let over = |replica| matches!(replica, ReplicaState::Broken | ReplicaState::Closing);
    let evicted = before.replicas.iter().find(|old| {
        let now = same_life(after, old.incarnation).map(|now| now.state);
        // An empty seed is no source: it ends when its version has come another way.
        let unborn = is_seed(old) && old.version.is_none();
        let alive = old.incarnation != reports && !over(old.state) && !unborn;
        alive && now.is_none_or(over)
    });
    evicted.map(|old| format!("{} was ended by a report of group {reports}", old.name))
}
