//! L2 for slow sources: a reader that reports its source as slow is moved in the same event, if
//! another source is free that the reader has not found slow. And no reader changes sources without
//! end.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::limits::MOVES;
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Attempt, Incarnation, OpSeq, Time, Version};

use super::{NoIdleSource, datacentre, height, reads_from};
use crate::checkers::{Checker, Fact};

pub(in crate::checkers) struct LeavesSlow {
    /// Bounds that a free source must keep.
    places: NoIdleSource,
    /// The last assignment of each group.
    assigned: BTreeMap<Incarnation, (OpSeq, Attempt)>,
    /// Sources that each group has found slow.
    slow: BTreeMap<Incarnation, BTreeSet<Incarnation>>,
    /// The group that has just reported its only source as slow, and must be moved.
    says: Option<Incarnation>,
    /// The group that has just reported one of several sources as slow, and lets go of that source.
    sheds: Option<Incarnation>,
    moves: BTreeMap<(Incarnation, OpSeq), u32>,
    edges: BTreeMap<Incarnation, Vec<(Incarnation, Version)>>,
    /// Copies that a reader may have accused of wrong bytes. No reader leaves its source for such a
    /// copy (T4).
    accused: BTreeSet<(Incarnation, Version)>,
    accusations: u64,
}

impl LeavesSlow {
    pub(in crate::checkers) fn new(places: NoIdleSource) -> Self {
        let (assigned, slow, moves, edges) = Default::default();
        let (accused, accusations) = Default::default();
        Self { places, assigned, slow, says: None, sheds: None, moves, edges, accused, accusations }
    }

    fn told(&mut self, group: Incarnation, place: (OpSeq, Attempt)) -> Option<String> {
        if self.assigned.insert(group, place) == Some(place) || self.says != Some(group) {
            return None; // another shard of it was told before
        }
        self.says = None;
        let moves = self.moves.entry((group, place.0)).or_default();
        *moves += 1;
        (*moves > MOVES).then(|| format!("group {group} has changed sources {moves} times"))
    }

    fn says_slow(&mut self, group: Incarnation, place: (OpSeq, Attempt)) {
        let sources = self.edges.get(&group).map_or(&[][..], Vec::as_slice);
        let moves = self.moves.get(&(group, place.0)).copied().unwrap_or_default();
        if self.assigned.get(&group) != Some(&place) || moves >= MOVES {
            return;
        }
        match sources {
            [] => {}
            [(source, _)] => {
                self.slow.entry(group).or_default().insert(*source);
                self.says = Some(group);
            }
            _ => self.sheds = Some(group),
        }
    }

    /// A group that reported one of several sources goes on with the others. The source that it
    /// lost counts as slow.
    fn note_shed(&mut self, before: &BTreeMap<Incarnation, Vec<(Incarnation, Version)>>) {
        let Some(group) = self.sheds.take() else { return };
        let now = self.edges.get(&group).map_or(&[][..], Vec::as_slice);
        let gone = before.get(&group).into_iter().flatten().filter(|source| !now.contains(source));
        self.slow.entry(group).or_default().extend(gone.map(|(source, _)| *source));
    }

    fn books(&mut self, books: &Snapshot) -> Option<String> {
        let before = std::mem::take(&mut self.edges);
        for edge in books.models.values().flat_map(|model| &model.edges) {
            self.edges.entry(edge.reader_life).or_default().push((edge.source_life, edge.version));
        }
        if std::mem::replace(&mut self.accusations, books.counters.accusations)
            < books.counters.accusations
        {
            self.note_accused(&before);
        }
        self.note_shed(&before);
        let group = self.says.take()?;
        if self.edges.get(&group) != before.get(&group) {
            return None; // it has lost its source in the same event
        }
        let stands = |model: &ModelSnapshot| self.free(model, group).map(str::to_owned);
        let free = books.models.values().find_map(stands)?;
        Some(format!("group {group} reads from a slow source, and {free} is free"))
    }

    /// A reader that lost its only source in this event may have accused it.
    fn note_accused(&mut self, before: &BTreeMap<Incarnation, Vec<(Incarnation, Version)>>) {
        for (reader, sources) in before {
            if let [source] = sources[..]
                && !self.edges.get(reader).is_some_and(|now| now.contains(&source))
            {
                self.accused.insert(source);
            }
        }
    }

    fn free<'a>(&self, model: &'a ModelSnapshot, group: Incarnation) -> Option<&'a str> {
        let reader = model.replicas.iter().find(|replica| replica.incarnation == group)?;
        let pending = reader.pending.as_ref()?;
        let edge = model.edges.iter().find(|edge| edge.reader_life == group)?;
        let here = datacentre(model, group)?;
        let below = if reader.version.is_some() { 0 } else { height(model, group, edge.version) };
        if below + 1 > self.places.depth_limit as usize {
            return None;
        }
        let source = model.replicas.iter().find(|source| {
            let near = |life| datacentre(model, life) == Some(here);
            source.state == ReplicaState::Sealed
                && source.version == Some(edge.version)
                && source.incarnation != group
                && near(source.incarnation)
                && !reads_from(model, source.incarnation, group)
                && self.places.has_place(model, reader, source, model.placed_edges())
                && !pending.failed.contains_key(&source.incarnation)
                && !self.accused.contains(&(source.incarnation, edge.version))
                && !self.slow[&group].contains(&source.incarnation)
        });
        source.map(|source| source.name.as_str())
    }
}

impl Checker for LeavesSlow {
    fn name(&self) -> &'static str {
        "L2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Slow { seq, attempt, .. }, .. } => {
                self.says_slow(who.incarnation?, (*seq, *attempt));
                None
            }
            Fact::Said { who, message: ServerMessage::Assigned { seq, attempt, .. }, .. } => {
                self.told(who.incarnation?, (*seq, *attempt))
            }
            Fact::Books(books) => self.books(books),
            _ => None,
        }
    }
}
