//! Retention: which versions are to survive, and when a group may give its copy up (§4.3.3 of the
//! paper; A1, A2).
//!
//! A copy counts if it is whole, sealed, listed and not on a spot instance. The newest versions that have such a
//! copy are retained, as many as the trainer asked for, and those that any group keeps by name (`exact`). The holder of the last countable copy of a retained version
//! keeps it until an offload replica has the version, or until the offload has failed: then the loss is recorded,
//! and the holder goes on.

use crate::message::Role;
use crate::server::contexts::GroupCtx;
use crate::server::rooms::{Books, DurabilityHandler};
use crate::server::stores::group::Group;
use crate::server::stores::model::Model;
use crate::server::stores::retention::RetentionLoss;
use crate::server::stores::timers::Timer;
use crate::server::stores::trust::Trust;
use crate::{Incarnation, Safeguard, Time, Version};

/// Losses that a server remembers for people, even of models that are forgotten. The counter has no
/// bound.
const LOSSES_SHOWN: usize = 256;

impl Group {
    /// Whether retention may count the group's copy, once the copy is proved.
    pub(super) fn counts(&self) -> bool {
        let copy = self
            .held
            .as_ref()
            .is_some_and(|held| held.visible && held.sealed && held.fenced.is_none());
        // A seed goes when its datacentre does not need it, whatever is retained: retention can't rely on it.
        let lasts = !self.released && !self.is_spot() && self.seeds().is_none();
        copy && self.over.is_none() && self.complete() && lasts
    }

    fn is_spot(&self) -> bool {
        self.members.values().any(|member| member.location.spot)
    }

    pub(in crate::server) fn offloads(&self) -> Option<Version> {
        match self.role {
            Role::Offload(version) => Some(version),
            Role::Trainer | Role::Rollout | Role::Seed(_) => None,
        }
    }
}

impl Books<'_> {
    /// Whether another group has a countable copy of a version.
    pub(super) fn is_countable(
        &self,
        model: &Model,
        version: Version,
        but: Option<Incarnation>,
    ) -> bool {
        let mut others = model.holders(version).filter(|group| Some(*group) != but);
        others.any(|group| self.relies_on(self.groups.of(&group)))
    }

    /// Whether a group's copy counts and is believed.
    fn relies_on(&self, group: &Group) -> bool {
        let safeguards = self.config.safeguards;
        let believed = group.held.as_ref().is_some_and(|held| held.trust == Trust::Proved)
            || !safeguards.on(Safeguard::ProvedCopies);
        let blind = !safeguards.on(Safeguard::OffloadsCount);
        group.counts() && believed && !(blind && group.offloads().is_some())
    }

    /// Whether a version is kept by name, or is one of the newest that are to survive. Newer versions without a
    /// countable copy take no place, so that a version goes only when its successors are safe.
    pub(super) fn is_retained(&self, model: &Model, version: Version) -> bool {
        let exactly = self.config.safeguards.on(Safeguard::ExactRetained);
        if exactly && model.retention.exact.contains_key(&version) {
            return true;
        }
        let wanted = model.retention.versions as usize;
        let newer = model.visible.keys().rev().take_while(|newer| **newer > version);
        newer.filter(|newer| self.is_countable(model, **newer, None)).take(wanted).count() < wanted
    }
}

impl GroupCtx<'_> {
    /// Whether a version would be lost with the group's copy: the version is retained, this copy is
    /// good enough to count, and no other copy counts. While copies may be unknown, the server must
    /// assume so (A5).
    fn is_last_countable(&self) -> bool {
        let GroupCtx { group, model, .. } = *self;
        let Some(held) = group.held.as_ref().filter(|held| held.sealed && held.fenced.is_none())
        else {
            return false;
        };
        let broken = group.over.as_ref().is_some_and(|over| !over.closing);
        let of_another = group.offloads().is_some() || group.seeds().is_some();
        let may_count = !group.is_spot() && !of_another && group.complete();
        !broken
            && may_count
            && self.is_retained(model, held.version)
            && !self.is_countable(model, held.version, Some(group.incarnation))
    }

    /// Whether the group has to keep its copy for now.
    pub(in crate::server) fn is_held_back(&self) -> bool {
        self.model.retention.held_back.contains(&self.group.incarnation)
    }
}

impl DurabilityHandler<'_> {
    /// A group that gives its copy up keeps it until then at most, if the copy has to be offloaded
    /// first.
    pub(in crate::server) fn hold_until(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        until: Time,
    ) {
        let group = self.groups.of_mut(&incarnation);
        let until = until.min(now + self.config.offload_deadline);
        group.hold_until = Some(until);
        if let Some(held) = &mut group.held {
            held.offload_failed = None;
        }
        self.timers.set(until, Timer::Hold(incarnation));
    }

    /// Whether a group that wants to give its copy up may do so, as far as retention goes. `ready`:
    /// nothing else keeps the copy. If not, a comparison or an offload is under way, of this copy
    /// or another, or the copy is lost and not `ready`. The group is looked at again when something
    /// changes.
    pub(in crate::server) fn may_give_up(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        ready: bool,
    ) -> bool {
        if !self.books().group(incarnation).is_last_countable() {
            if ready {
                self.end_hold(incarnation);
            } else {
                self.let_go(incarnation);
            }
            return true;
        }
        let group = self.groups.of_mut(&incarnation);
        let overdue = group.hold_until.is_none_or(|until| until <= now);
        let held = group.copy_mut();
        if held.trust == Trust::Refuted {
            held.offload_failed = Some("it was found not to hold the version's bytes".to_owned());
        }
        if overdue && held.offload_failed.is_none() {
            held.offload_failed = Some("it was not offloaded in time".to_owned());
        }
        if held.offload_failed.is_some() {
            if ready {
                self.lose_version(incarnation);
            }
            return ready;
        }
        let version = held.version;
        let model = self.models.of_mut(&group.model);
        model.retention.held_back.insert(incarnation);
        if !model.retention.asked.contains_key(&version) {
            self.secure(now, incarnation, version);
        }
        !self.config.safeguards.on(Safeguard::OffloadWait)
    }

    /// The holder of the last proved copy wants to give it up: proves another copy first, or has
    /// one made.
    fn secure(&mut self, now: Time, incarnation: Incarnation, version: Version) {
        let awaits_proof = self.awaits_proof(now, incarnation, version);
        let model = self.models.of(&self.groups.of(&incarnation).model);
        let copies = model.retention.replicas.iter().map(|replica| self.groups.of(replica));
        let made = copies.clone().any(|copy| {
            let blind = !self.config.safeguards.on(Safeguard::OffloadsCount);
            copy.offloads() == Some(version) && copy.counts() && !blind
        });
        if !made && !awaits_proof {
            self.ask_offload(incarnation, version);
        } else if made && !self.is_compared(incarnation, version) {
            let reason = "the copy that was made did not show that it holds the bytes".to_owned();
            self.groups.of_mut(&incarnation).copy_mut().offload_failed = Some(reason);
            self.agenda.wake(incarnation);
        }
    }

    /// The group's copy need not be kept any longer.
    pub(in crate::server) fn end_hold(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        if group.hold_until.take().is_some() {
            self.timers.cancel(Timer::Hold(incarnation));
        }
        self.let_go(incarnation);
    }

    /// The group need not keep its copy for now, because other groups have one; it has not given its own up yet.
    fn let_go(&mut self, incarnation: Incarnation) {
        let group = self.groups.of(&incarnation);
        let model = self.models.of_mut(&group.model);
        if model.retention.held_back.remove(&incarnation) {
            // An offload that it was asked for has no owner any more.
            model.retention.asked.retain(|_, owner| *owner != incarnation);
            self.agenda.note_change(&group.model);
        }
    }

    /// The group's time to be offloaded is over: its call may end now if nothing else keeps it.
    /// Returns whether the copy was held back.
    pub(in crate::server) fn give_up_hold(&mut self, incarnation: Incarnation) -> bool {
        let Some(group) = self.groups.get_mut(&incarnation) else { return false };
        group.hold_until = None;
        self.books().group(incarnation).is_held_back()
    }

    pub(in crate::server) fn hold_timer(&mut self, now: Time, incarnation: Incarnation) {
        let until = self.groups.get(&incarnation).and_then(|group| group.hold_until);
        if until.is_some_and(|until| until <= now) {
            self.agenda.wake(incarnation);
        }
    }

    /// Records the loss of a retained version: its last countable copy goes, and nothing more can
    /// be done.
    fn lose_version(&mut self, incarnation: Incarnation) {
        self.counters.retention_lost += 1;
        self.end_hold(incarnation);
        let group = self.groups.of(&incarnation);
        let held = group.copy();
        let loss = RetentionLoss {
            model: group.model.clone(),
            version: held.version,
            replica: group.replica.clone(),
            reason: held.offload_failed.clone().unwrap_or_default(),
        };
        self.losses.push_back(loss);
        if self.losses.len() > LOSSES_SHOWN {
            self.losses.pop_front();
        }
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
