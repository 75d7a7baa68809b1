//! D7: every host is entered once: a group reads from another host only if none on its own has the version, or is
//! getting it from elsewhere so that the group can read it there.

use std::rc::Rc;

use weightcast_protocol::server::{
    ModelSnapshot, ReadEdge, ReplicaSnapshot, ReplicaState, Snapshot,
};
use weightcast_protocol::{Incarnation, Time, Version};

use super::{Checker, Fact};
use crate::books::retained::same_life;

/// A source that has failed a call this often does not count.
const FAILURES: u32 = 3;

#[derive(Default)]
pub(super) struct HostFirst {
    /// The books before the event.
    before: Option<Rc<Snapshot>>,
}

impl Checker for HostFirst {
    fn name(&self) -> &'static str {
        "D7"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(after) = fact else { return None };
        let before = self.before.replace(Rc::clone(after))?;
        after.models.iter().find_map(|(name, model)| {
            let before = before.models.get(name)?;
            // Who reads the version already may go on elsewhere: its source was slow, or it has helpers.
            let reads = |edge: &ReadEdge| {
                let same = |old: &&ReadEdge| {
                    old.reader_life == edge.reader_life && old.version == edge.version
                };
                before.edges.iter().any(|old| same(&old))
            };
            model
                .edges
                .iter()
                .filter(|edge| !reads(edge))
                .find_map(|edge| check(before, model, edge))
        })
    }
}

/// The order within the event is not seen, so what is beside the reader counts if it is there before and after.
fn check(before: &ModelSnapshot, after: &ModelSnapshot, edge: &ReadEdge) -> Option<String> {
    let reader = same_life(after, edge.reader_life)?;
    if is_beside(reader, same_life(after, edge.source_life)?) {
        return None;
    }
    let other = beside(before, reader, edge.version)
        .find(|old| beside(after, reader, edge.version).any(|new| new == *old))?;
    let other = same_life(after, other)?;
    Some(format!("{} reads from {}, not {}", edge.reader, edge.source, other.name))
}

/// Whether a reader waits for a group on its host: one that has the version, perhaps while it reads another beside it,
/// or gets it, or puts in place what it has read, which may be the version.
pub(super) fn is_awaited(
    model: &ModelSnapshot,
    reader: &ReplicaSnapshot,
    version: Version,
) -> bool {
    let lands = |other: &ReplicaSnapshot| {
        let states = [ReplicaState::Draining, ReplicaState::Installing];
        other.incarnation != reader.incarnation
            && is_beside(reader, other)
            && (states.contains(&other.state) || other.version == Some(version))
    };
    beside(model, reader, version).next().is_some() || model.replicas.iter().any(lands)
}

/// Groups on the reader's host that have a version, or get it from elsewhere, and from which the reader can read it.
fn beside<'a>(
    model: &'a ModelSnapshot,
    reader: &'a ReplicaSnapshot,
    version: Version,
) -> impl Iterator<Item = Incarnation> + 'a {
    let failed = |other: &ReplicaSnapshot| {
        let failed = reader.pending.as_ref().map(|pending| &pending.failed);
        failed.and_then(|f| f.get(&other.incarnation)).is_some_and(|often| *often >= FAILURES)
    };
    let there = model.replicas.iter().filter(move |other| {
        other.incarnation != reader.incarnation
            && is_beside(reader, other)
            && !failed(other)
            && (holds(other, version) || is_filled(model, other, reader, version))
    });
    there.map(|other| other.incarnation)
}

fn holds(replica: &ReplicaSnapshot, version: Version) -> bool {
    let holds = [ReplicaState::Sealed, ReplicaState::Published];
    holds.contains(&replica.state) && replica.version == Some(version)
}

/// Whether a version comes to a group from a holder, directly or through others, and not through the reader. Only
/// groups of the same layouts have memory of which one can be filled with what the other has so far.
fn is_filled(
    model: &ModelSnapshot,
    group: &ReplicaSnapshot,
    reader: &ReplicaSnapshot,
    version: Version,
) -> bool {
    let above = |life: &Incarnation| {
        let own = |edge: &&ReadEdge| edge.reader_life == *life && edge.version == version;
        model.edges.iter().find(own).map(|edge| edge.source_life)
    };
    let chain = std::iter::successors(above(&group.incarnation), above).take(model.edges.len());
    let chain: Vec<Incarnation> = chain.collect();
    let root = chain.last().and_then(|root| same_life(model, *root));
    // The root may wait to read another version from the reader, once its own readers are done.
    let any = |life: &Incarnation| {
        let own = model.edges.iter().find(|edge| edge.reader_life == *life);
        own.map(|edge| edge.source_life)
    };
    let mut all = std::iter::successors(any(&group.incarnation), any).take(model.edges.len());
    same_layouts(group, reader)
        && !all.any(|life| life == reader.incarnation)
        && root.is_some_and(|root| root.version == Some(version))
}

/// Shards of replicated groups register other bytes than those of groups of the same size.
fn same_layouts(one: &ReplicaSnapshot, other: &ReplicaSnapshot) -> bool {
    let bytes = |replica: &ReplicaSnapshot| replica.shards.first().map(|shard| shard.bytes);
    one.num_shards == other.num_shards && bytes(one) == bytes(other)
}

/// Groups of worlds lie on one host each.
pub(super) fn is_beside(one: &ReplicaSnapshot, other: &ReplicaSnapshot) -> bool {
    let host =
        |replica: &ReplicaSnapshot| replica.shards.first().map(|shard| shard.location.host.clone());
    host(one).is_some_and(|host_of_one| !host_of_one.is_empty() && host(other) == Some(host_of_one))
}
