//! L2: a reader that has lost its source, or waits for one, is given a source as soon as one is
//! free. A failure costs only the time to notice it and to read what is missing. So no reader
//! starves while there is something to read (L4).

mod pace;

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::server::{ModelSnapshot, ReadEdge, ReplicaSnapshot, ReplicaState};
use weightcast_protocol::{Incarnation, Time, Version};

use super::d3::datacentre;
use super::d7::{is_awaited, is_beside};
use super::{Checker, Fact};
use crate::books::retained::same_life;
pub(super) use pace::LeavesSlow;

#[derive(Clone, Copy)]
pub(super) struct NoIdleSource {
    pub(super) fanout: u32,
    pub(super) host_fanout: u32,
    pub(super) depth_limit: u32,
}

impl Checker for NoIdleSource {
    fn name(&self) -> &'static str {
        "L2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(books) = fact else { return None };
        books.models.values().find_map(|model| {
            let waiting = model.replicas.iter().filter(|replica| wants(replica).is_some());
            let (reader, source) =
                waiting.filter_map(|r| Some((r, self.idle(model, r)?))).next()?;
            Some(format!("{} waits, and {source} is free", reader.name))
        })
    }
}

/// What a replica wants, if it could hear of a source.
fn wants(replica: &ReplicaSnapshot) -> Option<Version> {
    let hears = replica.shards.iter().all(|shard| shard.connected);
    replica.pending.as_ref().filter(|_| hears)?.wants
}

impl NoIdleSource {
    /// A free, near holder of the version that the reader wants, which has never failed the reader.
    fn idle<'a>(&self, model: &'a ModelSnapshot, reader: &ReplicaSnapshot) -> Option<&'a str> {
        let version = wants(reader)?;
        let failed = &reader.pending.as_ref()?.failed;
        let here = datacentre(model, reader.incarnation)?;
        // Readers of an old copy leave before its holder reads into it, so they add no height.
        let below =
            if reader.version.is_some() { 0 } else { height(model, reader.incarnation, version) };
        if below + 1 > self.depth_limit as usize {
            return None;
        }
        let source = model.replicas.iter().find(|source| {
            let near = |life| datacentre(model, life) == Some(here);
            let holds = [ReplicaState::Sealed, ReplicaState::Published].contains(&source.state);
            holds
                && source.version == Some(version)
                && source.incarnation != reader.incarnation
                && near(source.incarnation)
                && (is_beside(reader, source) || !is_awaited(model, reader, version))
                && !reads_from(model, source.incarnation, reader.incarnation)
                && self.has_place(model, reader, source, model.edges.iter())
                && failed.get(&source.incarnation).is_none_or(|failures| *failures == 0)
        });
        source.map(|source| source.name.as_str())
    }

    /// Whether fewer of these readers are as near to a source as this reader than may be: on its host, or in its
    /// datacentre.
    fn has_place<'a>(
        &self,
        model: &ModelSnapshot,
        reader: &ReplicaSnapshot,
        source: &ReplicaSnapshot,
        readers: impl Iterator<Item = &'a ReadEdge>,
    ) -> bool {
        let beside = is_beside(reader, source);
        let like = readers.filter(|edge| {
            edge.source_life == source.incarnation
                && datacentre(model, edge.reader_life) == datacentre(model, reader.incarnation)
                && same_life(model, edge.reader_life)
                    .is_some_and(|r| is_beside(r, source) == beside)
        });
        let places = if beside { self.fanout.max(self.host_fanout) } else { self.fanout };
        like.count() < places as usize
    }
}

/// Whether `group` reads from `from`, directly or through others. A holder reads in a staged
/// update, perhaps from several sources (D2).
fn reads_from(model: &ModelSnapshot, group: Incarnation, from: Incarnation) -> bool {
    let (mut next, mut seen) = (vec![group], BTreeSet::new());
    while let Some(at) = next.pop() {
        for edge in model.edges.iter().filter(|edge| edge.reader_life == at) {
            if edge.source_life == from {
                return true;
            }
            if seen.insert(edge.source_life) {
                next.push(edge.source_life);
            }
        }
    }
    false
}

/// The length of the longest chain of readers of a version below a group.
fn height(model: &ModelSnapshot, group: Incarnation, version: Version) -> usize {
    let mut heights = BTreeMap::from([(group, 0)]);
    // As many rounds as there are edges, so that the loop ends even in a cycle.
    for _ in &model.edges {
        for edge in model.edges.iter().filter(|edge| edge.version == version) {
            if let Some(above) = heights.get(&edge.source_life).copied() {
                let below = heights.entry(edge.reader_life).or_insert(0);
                *below = (*below).max(above + 1);
            }
        }
    }
    heights.into_values().max().unwrap_or(0)
}
