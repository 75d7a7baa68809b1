//! Figures by model: sums over the replicas of each model.

use std::collections::BTreeMap;

use weightcast_protocol::message::Role;
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Span, Version};

use crate::convert::{role_name, state_name};
use crate::metrics::model_label::model_label;

/// The sums of one model, or of all models without a label of their own.
#[derive(Debug, Default)]
pub(super) struct ModelSums {
    /// Replicas by role and state.
    pub(super) replicas: BTreeMap<(&'static str, &'static str), u64>,
    /// Available versions.
    pub(super) versions: u64,
    pub(super) readers: u64,
    /// The newest version, and for how long it has been that.
    pub(super) newest: Option<(Version, Span)>,
    /// Rollouts that hold an older version than the newest.
    pub(super) rollouts_behind: u64,
    /// Version lag, summed up over rollouts.
    pub(super) versions_behind: u64,
    pub(super) lag_max: u64,
    /// Age of the newest version, if a rollout is behind it.
    pub(super) stale_for: Span,
    /// Calls without an answer, by kind: how many, and the age of the oldest.
    pub(super) pending: BTreeMap<&'static str, (u64, Span)>,
}

/// The sums of all models, by label. The first models in the order of names have their own.
pub(super) fn by_model(snapshot: &Snapshot) -> BTreeMap<&str, ModelSums> {
    let mut sums = BTreeMap::<&str, ModelSums>::new();
    for (others, (name, model)) in snapshot.models.iter().enumerate() {
        sums.entry(model_label(others, name)).or_default().add(model);
    }
    sums
}

impl ModelSums {
    fn add(&mut self, model: &ModelSnapshot) {
        self.versions += model.versions.len() as u64;
        self.readers += model.edges.len() as u64;
        let newest = model.versions.last_key_value().map(|(version, _)| *version);
        let newest = newest.zip(model.latest_for);
        self.newest = self.newest.max(newest);
        for replica in &model.replicas {
            self.add_replica(replica);
            if let Some((newest, age)) = newest
                && let Some(held) = held_by_rollout(replica)
            {
                self.add_rollout(held, newest, age);
            }
        }
    }

    fn add_replica(&mut self, replica: &ReplicaSnapshot) {
        let kind = (role_name(replica.role), state_name(replica.state));
        *self.replicas.entry(kind).or_default() += 1;
        if let Some(call) = &replica.pending {
            let (count, oldest) = self.pending.entry(call.kind).or_default();
            *count += 1;
            *oldest = call.age.max(*oldest);
        }
    }

    fn add_rollout(&mut self, held: Version, newest: Version, age: Span) {
        if held >= newest {
            return;
        }
        self.rollouts_behind += 1;
        self.stale_for = self.stale_for.max(age);
        // Numbers of two runs say nothing of each other.
        if held.epoch == newest.epoch {
            let lag = newest.number - held.number;
            self.versions_behind += lag;
            self.lag_max = self.lag_max.max(lag);
        }
    }
}

/// The version that a rollout works with. A rollout at its end takes no newer one, and has none here.
fn held_by_rollout(replica: &ReplicaSnapshot) -> Option<Version> {
    let works = !matches!(replica.state, ReplicaState::Closing | ReplicaState::Broken);
    replica.version.filter(|_| works && replica.role == Role::Rollout)
}

#[cfg(test)]
pub(super) mod tests;
