//! Finds the coverage points of offload seeding in the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{Answer, Role, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, OpSeq, Version};

use crate::books::retained::{is_seed, same_life};
use crate::checkers::{Fact, Who};
use crate::sights::coverage::{Point, Points};

/// What must be remembered to recognise a point.
#[derive(Debug, Default)]
pub(crate) struct SeedSights {
    books: Option<Rc<Snapshot>>,
    /// Groups that were asked for a seed, by the seed's version and datacentre.
    asked: BTreeMap<(Version, String), BTreeSet<Incarnation>>,
    /// Groups that were told to read a seed, by call.
    from_seed: BTreeSet<(Incarnation, OpSeq)>,
}

impl SeedSights {
    pub(crate) fn observe(&mut self, fact: &Fact<'_>, points: &mut Points) {
        match fact {
            Fact::Said { who: Who { incarnation: Some(group), .. }, message, .. } => {
                self.said(*group, message, points);
            }
            Fact::Books(after) => self.books(after, points),
            _ => {}
        }
    }

    fn said(&mut self, group: Incarnation, message: &ServerMessage, points: &mut Points) {
        match message {
            ServerMessage::Seed { version, .. } => {
                let place = self.place(group).unwrap_or_default();
                let asked = self.asked.entry((*version, place)).or_default();
                asked.insert(group);
                if asked.len() > 1 {
                    points.insert(Point::SeedElectedTwice);
                }
            }
            ServerMessage::Assigned { seq, assignment, .. }
                if assignment.replica.contains("~seed") =>
            {
                self.from_seed.insert((group, *seq));
                if assignment.in_flight {
                    points.insert(Point::SeedReadInFlight);
                }
            }
            ServerMessage::Answered { seq, result: Ok(Answer::Committed { version, .. }) }
                if self.from_seed.remove(&(group, *seq)) =>
            {
                points.insert(Point::SeedConsumed);
                let models = self.books.iter().flat_map(|books| books.models.values());
                let newest = models.filter_map(|model| model.versions.keys().max()).max();
                if newest > Some(version) {
                    points.insert(Point::SeedConsumedLate);
                }
            }
            _ => {}
        }
    }

    fn place(&self, group: Incarnation) -> Option<String> {
        let mut models = self.books.as_ref()?.models.values();
        let group = models.find_map(|model| same_life(model, group))?;
        group.shards.first().map(|shard| shard.location.datacentre.clone())
    }

    fn books(&mut self, after: &Rc<Snapshot>, points: &mut Points) {
        let counters = &after.counters;
        let counted = [
            (counters.seeds, Point::SeedMade),
            (counters.seeds_failed, Point::SeedFailed),
            (counters.seeds_released, Point::SeedReleased),
        ];
        points.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(_, point)| *point));
        let before = self.books.replace(after.clone()).filter(|b| b.term == after.term);
        for (name, model) in &after.models {
            let old = before.as_ref().and_then(|before| before.models.get(name));
            if let Some(old) = old {
                model_points(old, model, points);
            }
        }
    }
}

fn model_points(old: &ModelSnapshot, new: &ModelSnapshot, points: &mut Points) {
    for seed in new.replicas.iter().filter(|replica| is_seed(replica)) {
        let was = same_life(old, seed.incarnation).map(|old| old.state);
        match (was, seed.state) {
            (Some(ReplicaState::Reading), ReplicaState::Broken) => {
                points.insert(Point::SeedDropped);
            }
            // A seed that had not read everything begins anew, and may have to wait for a source.
            (
                Some(ReplicaState::Recovering),
                ReplicaState::Empty | ReplicaState::Reading | ReplicaState::Sealed,
            ) => {
                points.insert(Point::SeedCameOver);
            }
            _ => {}
        }
    }
    let place = |life: Incarnation| {
        same_life(new, life).and_then(|r| r.shards.first()).map(|s| &s.location.datacentre)
    };
    for edge in new.edges.iter().filter(|edge| !old.edges.contains(edge)) {
        let held = same_life(old, edge.reader_life);
        let seeds = held.is_some_and(|reader| {
            reader.offload_seeding && reader.version.is_some() && reader.role == Role::Rollout
        });
        if seeds && place(edge.reader_life) != place(edge.source_life) {
            points.insert(Point::SeedInVain);
        }
    }
}
