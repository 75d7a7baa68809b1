//! D3: who crosses to another datacentre had no free source in its own.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::server::{ModelSnapshot, ReadEdge, Snapshot};
use weightcast_protocol::{Incarnation, OpSeq, Time};

use super::{Checker, Fact};

pub(super) struct NearFirst {
    fanout: u32,
    /// As it was before the event.
    before: Option<Rc<Snapshot>>,
    /// Sources that each call was given before: they may have failed it.
    tried: BTreeMap<Incarnation, (OpSeq, BTreeSet<String>)>,
}

impl NearFirst {
    pub(super) fn new(fanout: u32) -> Self {
        Self { fanout, before: None, tried: BTreeMap::new() }
    }
}

impl Checker for NearFirst {
    fn name(&self) -> &'static str {
        "D3"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said {
                who, message: ServerMessage::Assigned { seq, assignment, .. }, ..
            } => {
                let tried = self.tried.entry(who.incarnation?).or_default();
                if tried.0 != *seq {
                    *tried = (*seq, BTreeSet::new());
                }
                tried.1.insert(assignment.replica.clone());
                None
            }
            Fact::Books(after) => {
                let before = self.before.replace((*after).clone())?;
                after.models.iter().find_map(|(name, model)| {
                    let before = before.models.get(name)?;
                    let is_new = |edge: &&ReadEdge| !before.edges.contains(edge);
                    model.edges.iter().filter(is_new).find_map(|e| self.check(before, model, e))
                })
            }
            _ => None,
        }
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
        let tried = self.tried.get(&edge.reader_life).map(|(_, tried)| tried);
        let free = |model: &ModelSnapshot, name: &String| {
            let load = model.edges.iter().filter(|other| {
                other.source == *name && datacentre(model, other.reader_life) == Some(here)
            });
            let load = load.count();
            let near = model.replicas.iter().rev().find(|replica| replica.name == *name);
            let near = near.and_then(|replica| datacentre(model, replica.incarnation));
            near == Some(here)
                && model.versions.get(&edge.version).is_some_and(|names| names.contains(name))
                && load < self.fanout as usize
        };
        // Before and after the event: within it, the order is not seen.
        let better = after.versions.get(&edge.version).into_iter().flatten().find(|name| {
            free(before, name) && free(after, name) && !tried.is_some_and(|t| t.contains(*name))
        });
        better.map(|name| format!("{} reads from {}, not {name}", edge.reader, edge.source))
    }
}

/// Where a group runs: where its first shard does.
pub(super) fn datacentre(model: &ModelSnapshot, group: Incarnation) -> Option<&str> {
    let replica = model.replicas.iter().find(|replica| replica.incarnation == group)?;
    replica.shards.first().map(|shard| shard.location.datacentre.as_str())
}
