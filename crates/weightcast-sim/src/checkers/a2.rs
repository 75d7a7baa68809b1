//! A2: the last copy of a retained version is not given up before another one counts, or its loss
//! is on record. A copy of which a shard has only said that it read it is none.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact};
use crate::books::retained::{
    EmptyCopies, countable_but, is_offload, is_seed, lost_with_its_group, retained, same_life,
    whole_and_lasting,
};

#[derive(Default)]
pub(super) struct LastCopy {
    before: Option<(Time, Rc<Snapshot>)>,
    /// Copies that are not there: all sums were shown, and these shards have not read the bytes.
    empty: EmptyCopies,
    /// Copies that have counted, by group.
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
            // Its memory holds what it has read now.
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

/// What a server did in an event that no one group shows.
struct ServerEffects {
    /// Losses that it put on record.
    losses: BTreeSet<(String, Version)>,
    /// How long after the last event, if leases ran out in it.
    passed: Option<Span>,
}

impl ServerEffects {
    /// Whether a group lost a shard by its lease: then it has given nothing up.
    fn evicted(&self, replica: &ReplicaSnapshot) -> bool {
        let over = |passed: Span| replica.shards.iter().any(|shard| shard.lease_left <= passed);
        self.passed.is_some_and(over)
    }
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
        // Who is still being held back answers for it now.
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
                && retained(new, version))
            .then(|| format!("{} gave the last copy of {version} up", replica.name))
        })
    }

    /// The version of a copy that counts, or did before it was being given up.
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
