//! A2: the last copy of a retained version is not given up before another one counts, or its loss
//! is on record.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Time, Version};

use super::{Checker, Fact};
use crate::retained::{countable, is_offload, is_seed, retained, same_life, whole_and_lasting};

#[derive(Default)]
pub(super) struct LastCopy {
    before: Option<Rc<Snapshot>>,
    /// Copies that have counted, by group.
    counted: BTreeMap<Incarnation, Version>,
}

impl Checker for LastCopy {
    fn name(&self) -> &'static str {
        "A2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(after) = fact else { return None };
        let before = self.before.replace((*after).clone())?;
        let found = before.models.iter().find_map(|(name, old)| {
            let new = after.models.get(name)?;
            // A group that loses a shard by its lease gives nothing up.
            let evicted = after.counters.evictions > before.counters.evictions;
            let recorded = after.counters.retention_lost > before.counters.retention_lost;
            (!evicted && !recorded).then(|| self.lost(old, new)).flatten()
        });
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

impl LastCopy {
    fn lost(&self, old: &ModelSnapshot, new: &ModelSnapshot) -> Option<String> {
        let kept = countable(new);
        // Who is still being held back answers for it now.
        let held_back: BTreeSet<Version> =
            new.replicas.iter().filter_map(|replica| self.held(replica)).collect();
        old.replicas.iter().find_map(|replica| {
            let version = self.held(replica)?;
            let now = same_life(new, replica.incarnation);
            let given_up = now.is_none_or(|now| self.held(now) != Some(version));
            let ended = now.is_some_and(|now| {
                matches!(now.state, ReplicaState::Broken | ReplicaState::Fenced)
            });
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
