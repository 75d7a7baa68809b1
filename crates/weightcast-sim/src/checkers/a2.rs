//! A2: the last copy of a retained version is not given up before another copy counts, or the loss
//! is on record. A copy does not count if a shard claims to have read it and has not.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact};
use crate::books::retained::{
    EmptyCopies, countable_but, is_newest, is_offload, is_seed, lost_with_its_group, retained,
    same_life, whole_and_lasting,
};

#[derive(Default)]
pub(super) struct LastCopy {
    before: Option<(Time, Rc<Snapshot>)>,
    /// Copies that do not exist: their sums were shown, but these shards have not read the bytes.
    empty: EmptyCopies,
    /// The version of each group's copy that has counted, kept while the copy is being given up.
    counted: BTreeMap<Incarnation, Version>,
}

impl Checker for LastCopy {
    fn name(&self) -> &'static str {
        "A2"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Claimed { who, version, .. } => {
                let group = who.incarnation.map(|group| (group, *version));
                group.map(|copy| self.empty.entry(copy).or_default().insert(who.shard));
            }
            // The shard has read the bytes now, so its copy exists.
            Fact::ReadEnded { who, failure: None } => self.empty.retain(|(group, _), shards| {
                who.incarnation != Some(*group) || !shards.remove(&who.shard) || !shards.is_empty()
            }),
            _ => {}
        }
        let Fact::Books(after) = fact else { return None };
        let (then, before) = self.before.replace((now, Rc::clone(after)))?;
        let evictions = after.counters.evictions > before.counters.evictions;
        let event = ServerEffects {
            losses: after
                .losses
                .iter()
                .rev()
                .take((after.counters.retention_lost - before.counters.retention_lost) as usize)
                .map(|loss| (loss.model.clone(), loss.version))
                .collect(),
            passed: evictions.then(|| now - then),
        };
        let found = before
            .models
            .iter()
            .find_map(|(name, old)| self.lost(&event, name, old, after.models.get(name)?));
        for replica in after.models.values().flat_map(|model| &model.replicas) {
            match (replica.state, replica.version) {
                (ReplicaState::Sealed, Some(version)) => {
                    self.counted.insert(replica.incarnation, version);
                }
                (ReplicaState::Draining | ReplicaState::Closing, Some(_)) => {}
                _ => drop(self.counted.remove(&replica.incarnation)),
            }
        }
        found
    }
}

/// Effects of one event that the books of a single group do not show.
struct ServerEffects {
    /// Losses that the server put on record.
    losses: BTreeSet<(String, Version)>,
    /// The time since the event before, if leases ran out in this event.
    passed: Option<Span>,
}

impl ServerEffects {
    /// Whether a group may have lost a shard by its lease. Such a group has given nothing up.
    fn evicted(&self, replica: &ReplicaSnapshot) -> bool {
        let over = |passed: Span| replica.shards.iter().any(|shard| shard.lease_left <= passed);
        self.passed.is_some_and(over)
    }
}

/// Whether a version is retained because a group has it kept by name since this event. A copy that was given up before
/// that in the event was not retained (seed 1250).
fn kept_since(old: &ModelSnapshot, new: &ModelSnapshot, version: Version) -> bool {
    !old.exact.contains(&version) && !is_newest(new, version)
}

impl LastCopy {
    fn lost(
        &self,
        event: &ServerEffects,
        name: &str,
        old: &ModelSnapshot,
        new: &ModelSnapshot,
    ) -> Option<String> {
        let mut kept = countable_but(new, &self.empty);
        let recorded = event.losses.iter().filter(|(model, _)| model == name);
        kept.extend(recorded.map(|(_, version)| *version));
        kept.extend(lost_with_its_group(old, new));
        // A group that is held back in its drain still holds the copy, so the copy is not lost.
        let held_back: BTreeSet<Version> =
            new.replicas.iter().filter_map(|replica| self.held(replica)).collect();
        old.replicas.iter().find_map(|replica| {
            let version = self.held(replica)?;
            let now = same_life(new, replica.incarnation);
            let given_up = now.is_none_or(|now| self.held(now) != Some(version));
            let ended = match now.map(|now| now.state) {
                None => event.evicted(replica),
                Some(state) => matches!(state, ReplicaState::Broken | ReplicaState::Fenced),
            };
            (given_up
                && !ended
                && !kept.contains(&version)
                && !held_back.contains(&version)
                && retained(new, version)
                && !kept_since(old, new, version))
            .then(|| format!("{} gave the last copy of {version} up", replica.name))
        })
    }

    /// The version of a copy that counts, or that counted until it was being given up.
    fn held(&self, replica: &ReplicaSnapshot) -> Option<Version> {
        let given_up = [ReplicaState::Sealed, ReplicaState::Draining, ReplicaState::Closing];
        let version = replica.version?;
        let held = given_up.contains(&replica.state)
            && whole_and_lasting(replica)
            && !is_offload(replica)
            && !is_seed(replica)
            && self.counted.get(&replica.incarnation) == Some(&version);
        held.then_some(version)
    }
}
