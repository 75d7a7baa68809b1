//! O1: an update of a group with offload seeding that holds something does not read from another
//! datacentre, unless a seed that it was asked for has failed since it last read a version.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{
    ModelSnapshot, ReadEdge, ReplicaSnapshot, ReplicaState, Snapshot,
};
use weightcast_protocol::{Incarnation, Span, Time};

use super::d3::datacentre;
use super::{Checker, Fact};
use crate::retained::{is_seed, same_life};

pub(super) struct NoStall {
    seed_deadline: Span,
    before: Option<Rc<Snapshot>>,
    /// Which seed each group was asked for last, and when.
    asked: BTreeMap<Incarnation, (u64, Time)>,
    /// Groups whose seed has failed since they last read a version.
    failed: BTreeSet<Incarnation>,
}

impl NoStall {
    pub(super) fn new(seed_deadline: Span) -> Self {
        Self { seed_deadline, before: None, asked: BTreeMap::new(), failed: BTreeSet::new() }
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
            let late = |(_, at): &(u64, Time)| now - *at >= self.seed_deadline;
            let late = self.asked.get(&life).is_some_and(late);
            if late || has_lost_its_seed(&replica.name, old, new) {
                self.failed.insert(life);
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

/// Whether a seed on behalf of a replica held nothing, and is none any more. It may have been asked
/// for in an earlier term.
fn has_lost_its_seed(owner: &str, old: &ModelSnapshot, new: &ModelSnapshot) -> bool {
    let over = [ReplicaState::Broken, ReplicaState::Closing, ReplicaState::Fenced];
    let of_owner = |name: &str| name.split_once("~seed").is_some_and(|(of, _)| of == owner);
    let held_nothing =
        |r: &&ReplicaSnapshot| is_seed(r) && of_owner(&r.name) && r.version.is_none();
    old.replicas.iter().filter(held_nothing).any(|old| {
        let now = same_life(new, old.incarnation);
        now.is_none_or(|now| over.contains(&now.state))
    })
}
