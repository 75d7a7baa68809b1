//! D3: a reader crosses to another datacentre only if its own has no free source.

use std::rc::Rc;

use weightcast_protocol::server::{
    ModelSnapshot, ReadEdge, ReplicaSnapshot, ReplicaState, Snapshot,
};
use weightcast_protocol::{Incarnation, Time};

use super::{Checker, Fact};
use crate::books::retained::same_life;

/// A source that has failed a call this often does not count as a near source.
const FAILURES: u32 = 3;

pub(super) struct NearFirst {
    fanout: u32,
    /// The books before the event.
    before: Option<Rc<Snapshot>>,
}

impl NearFirst {
    pub(super) fn new(fanout: u32) -> Self {
        Self { fanout, before: None }
    }
}

impl Checker for NearFirst {
    fn name(&self) -> &'static str {
        "D3"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(after) = fact else { return None };
        let before = self.before.replace(Rc::clone(after))?;
        after.models.iter().find_map(|(name, model)| {
            let before = before.models.get(name)?;
            let is_new = |edge: &&ReadEdge| !before.edges.contains(edge);
            model.edges.iter().filter(is_new).find_map(|edge| self.check(before, model, edge))
        })
    }
}

impl NearFirst {
    fn check(
        &self,
        before: &ModelSnapshot,
        after: &ModelSnapshot,
        edge: &ReadEdge,
    ) -> Option<String> {
        let here = datacentre(after, edge.reader_life)?;
        if datacentre(after, edge.source_life)? == here {
            return None;
        }
        let reader = same_life(after, edge.reader_life)?;
        let failed = |source: &ReplicaSnapshot| {
            let failed = reader.pending.as_ref().map(|pending| &pending.failed);
            failed.and_then(|f| f.get(&source.incarnation)).is_some_and(|often| *often >= FAILURES)
        };
        let free = |model: &ModelSnapshot, life: Incarnation| {
            let near = |other: &&ReadEdge| {
                other.source_life == life && datacentre(model, other.reader_life) == Some(here)
            };
            let load = model.edges.iter().filter(near).count();
            let source = same_life(model, life);
            let holds = [ReplicaState::Sealed, ReplicaState::Published];
            source.is_some_and(|s| holds.contains(&s.state) && s.version == Some(edge.version))
                && load < self.fanout as usize
        };
        // A source counts only if it is free both before and after the event: the order within the
        // event is not seen.
        let better = after.replicas.iter().find(|source| {
            datacentre(after, source.incarnation) == Some(here)
                && source.incarnation != edge.reader_life
                && [before, after].iter().all(|model| free(model, source.incarnation))
                && !failed(source)
        });
        better.map(|near| format!("{} reads from {}, not {}", edge.reader, edge.source, near.name))
    }
}

/// The datacentre of a group: that of its first shard.
pub(super) fn datacentre(model: &ModelSnapshot, group: Incarnation) -> Option<&str> {
    let replica = model.replicas.iter().find(|replica| replica.incarnation == group)?;
    replica.shards.first().map(|shard| shard.location.datacentre.as_str())
}
