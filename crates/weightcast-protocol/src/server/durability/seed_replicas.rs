//! Seed replicas: a seed comes, and goes once no rollout in its datacentre lacks its version (O2, O3).

use std::collections::BTreeSet;

use crate::message::Role;
use crate::server::contexts::GroupCtx;
use crate::server::durability::offload::owner_of;
use crate::server::rooms::{Books, DurabilityHandler};
use crate::server::stores::model::Model;
use crate::server::stores::seeding::Asked;
use crate::server::stores::violation::{Violation, ensure};
use crate::{CallError, Incarnation, Safeguard, Time, Version};

impl GroupCtx<'_> {
    /// The seed replicas of the group's datacentre that have not ended; a seed that is closing
    /// counts.
    pub(super) fn seeds_near(self) -> impl Iterator<Item = Incarnation> {
        self.model.seeding.replicas.iter().copied().filter(move |seed| {
            let seed = self.groups.of(seed);
            seed.over.as_ref().is_none_or(|over| over.closing) && self.is_near(seed)
        })
    }

    /// Whether the group is the seed that was asked for.
    fn is_asked_for(&self) -> bool {
        self.asked_here().is_some_and(|asked| asked.replica() == self.group.replica)
    }

    /// Whether a seed is still of use. Also true while the server can't tell yet.
    pub(in crate::server) fn is_seed_needed(self) -> bool {
        let GroupCtx { group, model, .. } = self;
        if group.over.is_some() || group.released || group.recovering || model.recovers {
            return true; // the seed goes already, or nobody can tell yet
        }
        let Some(held) = &group.held else { return self.is_asked_for() };
        let owned = model.replicas.contains_key(owner_of(&group.replica));
        let lacked =
            self.is_lacked(held.version) || !self.config.safeguards.on(Safeguard::SeedRelease);
        let asked = self.asked_here().is_some();
        held.fenced.is_none() && owned && lacked && !asked && !self.is_outdone()
    }

    /// Whether a rollout of the seed's datacentre could still use a version.
    fn is_lacked(&self, version: Version) -> bool {
        let groups = self.model.replicas.values().map(|group| self.groups.of(group));
        let mut near = groups
            .filter(|group| group.role == Role::Rollout && group.registered && self.is_near(group));
        near.any(|group| group.held.as_ref().is_none_or(|held| held.version < version))
    }

    /// Whether the seed's datacentre has a newer version, or an older seed of the same version.
    fn is_outdone(&self) -> bool {
        let version = self.group.held.as_ref().map(|held| held.version);
        let mut newer = self.model.visible.keys().filter(|newer| Some(**newer) > version);
        newer.any(|newer| self.is_held_here(*newer))
            || self.seeds_near().map(|seed| self.groups.of(&seed)).any(|other| {
                other.held.as_ref().map(|held| held.version) == version
                    && other.incarnation < self.group.incarnation
                    && !other.released
            })
    }
}

impl DurabilityHandler<'_> {
    /// A group has committed: if it is a seed, its request is fulfilled.
    pub(in crate::server) fn note_seeded(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        group.seed_failed = false;
        if group.seeds().is_some() {
            self.counters.seeds += 1;
            self.withdraw_ask(incarnation);
        }
    }

    /// A seed is at its end, or its content was refused.
    pub(super) fn note_seed_end(&mut self, incarnation: Incarnation) {
        if self.books().group(incarnation).is_asked_for() {
            self.fail_seed(incarnation);
        }
    }

    fn withdraw_ask(&mut self, seed: Incarnation) {
        if self.books().group(seed).is_asked_for() {
            let group = self.groups.of(&seed);
            let model = self.models.of_mut(&group.model);
            model.seeding.asked.remove(group.datacentre());
        }
    }

    /// A seed of an earlier term goes on. Its request is entered again, so that no other group is
    /// asked for one.
    pub(in crate::server) fn seed_came_over(&mut self, now: Time, incarnation: Incarnation) {
        let Some(group) = self.groups.get(&incarnation) else { return };
        let Some(version) = group.seeds().filter(|_| group.over.is_none()) else { return };
        if group.held.is_none() {
            let until = now + self.config.seed_deadline;
            let owner = owner_of(&group.replica).to_owned();
            let here = group.datacentre().to_owned();
            let model = self.models.of_mut(&group.model);
            let asked = Asked { ask: 0, version, owner, until };
            model.seeding.asked.entry(here).or_insert(asked);
        }
        self.agenda.note_change(&self.groups.of(&incarnation).model);
    }

    /// Something has changed in a model: withdraws requests for seeds that are not needed any more.
    /// Returns the model's seeds. The caller judges them one at a time, since a seed that has gone
    /// does not count for the next.
    pub(in crate::server) fn review_asks(&mut self, name: &str) -> BTreeSet<Incarnation> {
        let Some(model) = self.models.get(name) else { return BTreeSet::new() };
        let needless = model.seeding.asked.iter().filter(|(here, asked)| {
            let lost = !model.recovers && !model.replicas.contains_key(&asked.owner);
            let mut newer = model.visible.range(asked.version..);
            lost || newer.any(|(version, _)| self.books().is_held_in(model, here, *version))
        });
        let needless: Vec<String> = needless.map(|(here, _)| here.clone()).collect();
        let model = self.models.of_mut(name);
        model.seeding.asked.retain(|here, _| !needless.contains(here));
        model.seeding.replicas.clone()
    }

    /// Lets a seed go. A seed that holds a version is drained and told to close. A seed that holds
    /// nothing just ends, with the returned error.
    pub(in crate::server) fn let_seed_go(&mut self, seed: Incarnation) -> Option<CallError> {
        let group = self.groups.of(&seed);
        if group.over.is_some() || group.released {
            return None;
        }
        if group.held.is_some() {
            self.counters.seeds_released += 1;
            self.release(seed);
            return None;
        }
        self.withdraw_ask(seed);
        Some(self.groups.of(&seed).broken("nobody needs what it was to bring any more"))
    }
}

impl Books<'_> {
    /// O2: a datacentre has one seed at a time. T5: lists name no seed that is gone.
    pub(in crate::server) fn validate_seeds(
        &self,
        name: &str,
        model: &Model,
    ) -> Result<(), Violation> {
        let mut places = BTreeSet::new();
        for seed in &model.seeding.replicas {
            let group = self.groups.get(seed);
            ensure(group.is_some(), "T5", || format!("{name}: seed {seed} is not forgotten"))?;
            let Some(group) = group.filter(|group| {
                group.over.is_none() && !group.released && !group.recovering && !model.recovers
            }) else {
                continue;
            };
            ensure(places.insert(group.datacentre()), "O2", || {
                format!("{name}: {} is one of two seeds of {:?}", group.replica, group.datacentre())
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "needs_tests.rs"]
mod needs;
