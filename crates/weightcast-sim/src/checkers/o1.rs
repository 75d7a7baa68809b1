//! O1: an update of a group with offload seeding that holds a version does not cross, unless a seed
//! of the group has failed since the group last read a version.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{
    ModelSnapshot, ReadEdge, ReplicaSnapshot, ReplicaState, Snapshot,
};
use weightcast_protocol::{Incarnation, Span, Time};

use super::d3::datacentre;
use super::{Checker, Fact};
use crate::books::retained::{is_seed, same_life};

pub(super) struct NoStall {
    seed_deadline: Span,
    before: Option<Rc<Snapshot>>,
    /// Which seed each group was asked for last, and when.
    asked: BTreeMap<Incarnation, (u64, Time)>,
    /// Since when each seed replica has been in the books without a version.
    coming: BTreeMap<Incarnation, Time>,
    /// Groups whose seed has failed since they last read a version.
    failed: BTreeSet<Incarnation>,
}

impl NoStall {
    pub(super) fn new(seed_deadline: Span) -> Self {
        let (asked, coming) = Default::default();
        Self { seed_deadline, before: None, asked, coming, failed: BTreeSet::new() }
    }
}

impl Checker for NoStall {
    fn name(&self) -> &'static str {
        "O1"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::SeedFailed { ask }, .. } => {
                let group = who.incarnation?;
                let current = self.asked.get(&group).is_some_and(|(last, _)| last == ask);
                current.then(|| self.failed.insert(group));
                None
            }
            Fact::Said { who, message: ServerMessage::Seed { ask, .. }, .. } => {
                let new = (*ask, now);
                let asked = self.asked.entry(who.incarnation?).or_insert(new);
                if asked.0 != *ask {
                    *asked = new;
                }
                None
            }
            Fact::Books(after) => {
                let before = self.before.replace((*after).clone())?;
                after.models.iter().find_map(|(name, model)| {
                    let before = before.models.get(name)?;
                    self.note_coming(now, model);
                    self.note_failures(now, before, model);
                    let is_new = |edge: &&ReadEdge| !before.edges.contains(edge);
                    let stalls = |edge: &&ReadEdge| self.stalls(before, model, edge);
                    let edge = model.edges.iter().filter(is_new).find(stalls)?;
                    Some(format!("{} crosses for {} in its update", edge.reader, edge.version))
                })
            }
            _ => None,
        }
    }
}

impl NoStall {
    fn note_failures(&mut self, now: Time, old: &ModelSnapshot, new: &ModelSnapshot) {
        for replica in &new.replicas {
            let life = replica.incarnation;
            let read = same_life(old, life).is_some_and(|old| old.state == ReplicaState::Reading);
            if read && replica.version.is_some() {
                self.failed.remove(&life);
            }
            let late = |at: Time| now - at >= self.seed_deadline;
            let asked_long_ago = self.asked.get(&life).is_some_and(|(_, at)| late(*at));
            let comes_late = |seed: &ReplicaSnapshot| self.coming.get(&seed.incarnation);
            let seeds = new.replicas.iter().filter(|seed| is_seed_of(seed, &replica.name));
            let comes_late = seeds.filter_map(comes_late).any(|since| late(*since));
            if asked_long_ago || comes_late || has_lost_its_seed(&replica.name, old, new) {
                self.failed.insert(life);
            }
        }
    }

    /// Remembers when each empty seed was first seen. An earlier term's server may have asked for
    /// the seed; this term's server counts the seed's time from when it came over.
    fn note_coming(&mut self, now: Time, model: &ModelSnapshot) {
        for seed in model.replicas.iter().filter(|replica| is_seed(replica)) {
            match seed.version {
                None => drop(self.coming.entry(seed.incarnation).or_insert(now)),
                Some(_) => drop(self.coming.remove(&seed.incarnation)),
            }
        }
    }

    fn stalls(&self, old: &ModelSnapshot, new: &ModelSnapshot, edge: &ReadEdge) -> bool {
        let place = |life| datacentre(new, life);
        let update = |replica: &&ReplicaSnapshot| {
            let call = replica.pending.as_ref().map(|pending| pending.call.as_str());
            call.is_some_and(|call| call.starts_with("update"))
        };
        let reader = same_life(new, edge.reader_life).filter(update);
        let holds = reader.is_some_and(|reader| {
            let held = same_life(old, reader.incarnation).and_then(|old| old.version);
            held.is_some() && reader.offload_seeding
        });
        holds
            && place(edge.reader_life) != place(edge.source_life)
            && !self.failed.contains(&edge.reader_life)
    }
}

/// Whether an empty seed of this owner has ended in this event. An earlier term's server may have
/// asked for it.
fn has_lost_its_seed(owner: &str, old: &ModelSnapshot, new: &ModelSnapshot) -> bool {
    let over = [ReplicaState::Broken, ReplicaState::Closing, ReplicaState::Fenced];
    let held_nothing = |r: &&ReplicaSnapshot| is_seed_of(r, owner) && r.version.is_none();
    old.replicas.iter().filter(held_nothing).any(|old| {
        let now = same_life(new, old.incarnation);
        now.is_none_or(|now| over.contains(&now.state))
    })
}

fn is_seed_of(replica: &ReplicaSnapshot, owner: &str) -> bool {
    let of = replica.name.split_once("~seed").map(|(of, _)| of);
    is_seed(replica) && of == Some(owner)
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::message::Role;

    use super::*;
    use crate::books::snapshots::{VERSION, at, books, edge, replica, updates};

    /// Replica 1 holds a version and updates; replica 2 is its seed; replica 3 is in another
    /// datacentre. Whether the checker complains.
    fn crosses(checker: &mut NoStall, now: u64, seed: Option<(&str, bool)>, reads: bool) -> bool {
        let mut reader = updates(at(replica(1), "here"));
        (reader.offload_seeding, reader.version) = (true, Some(VERSION));
        let mut replicas = vec![reader, at(replica(3), "there")];
        if let Some((name, holds)) = seed {
            let mut seed = at(replica(2), "here");
            (seed.name, seed.role) = (name.to_owned(), Role::Seed(VERSION));
            seed.version = holds.then_some(VERSION);
            replicas.push(seed);
        }
        let edges = if reads { vec![edge(1, 3)] } else { vec![] };
        let books = Rc::new(books(replicas, edges));
        checker.observe(Time(now), &Fact::Books(&books)).is_some()
    }

    #[test]
    fn a_seed_that_came_over_and_takes_too_long_has_failed() {
        let (own, other) = ("replica-1~seed-0.1", "replica-4~seed-0.1");
        for (seed, now, wrong) in [
            (Some((own, false)), 10, true),
            (Some((own, false)), 11, false),
            (Some((own, true)), 11, true),
            (Some((other, false)), 11, true),
            (None, 11, true),
        ] {
            let mut checker = NoStall::new(Span(10));
            assert!(!crosses(&mut checker, 0, seed, false));
            assert!(!crosses(&mut checker, 1, seed, false));
            assert_eq!(crosses(&mut checker, now, seed, true), wrong, "{seed:?} at {now}");
        }
    }
}
