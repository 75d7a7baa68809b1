//! Offload replicas: asked for, founded, failed, released (§4.3.3 of the paper; A2 to A4).
//!
//! A group that holds the last countable copy of a retained version is told to copy its memory aside. Each of its
//! shards opens a further session for the copy; together these are a group with [`Role::Offload`], which publishes
//! the version as any group would: its sum must be that of the version. The offload replica is released once it is
//! not needed.

use crate::limits::DETAIL_CHARS;
use crate::message::{Open, Role, ServerMessage};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::{Books, DurabilityHandler};
use crate::server::stores::group::Group;
use crate::server::stores::model::Model;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::trust::Trust;
use crate::server::stores::violation::{Violation, ensure};
use crate::{CallError, Generation, Incarnation, Safeguard, Version};

/// Name of the offload replica of a replica's copy: no user can open one of that name.
pub fn offload_name(replica: &str, version: Version) -> String {
    format!("{replica}~offload-{}.{}", version.epoch, version.number)
}

/// On whose behalf an offload or seed replica is opened, by its name.
pub(in crate::server) fn owner_name(open: &Open) -> &str {
    match open.role {
        Role::Offload(_) | Role::Seed(_) => owner_of(&open.replica),
        Role::Trainer | Role::Rollout => &open.replica,
    }
}

/// The owner's name in the name of an offload or seed replica.
pub(super) fn owner_of(replica: &str) -> &str {
    replica.split('~').next().unwrap_or_default()
}

impl Group {
    /// Whether the group is the offload replica of another group's copy.
    fn is_offload_of(&self, owner: &Group) -> bool {
        self.offloads().is_some_and(|version| self.replica == offload_name(&owner.replica, version))
    }
}

impl DurabilityHandler<'_> {
    /// Asks a group's shards to copy aside what they hold.
    pub(super) fn ask_offload(&mut self, incarnation: Incarnation, version: Version) {
        let group = self.groups.of(&incarnation);
        let model = self.models.of_mut(&group.model);
        model.retention.asked.insert(version, incarnation);
        group.member_ids().into_iter().for_each(|member| self.remind_offload(member));
    }

    /// Tells a member again what it may have missed: to offload its copy, or to close a replica
    /// that was released.
    pub(in crate::server) fn remind_offload(&mut self, to: MemberId) {
        let group = self.groups.of(&to.group);
        if group.released {
            let deadline = self.config.drain_deadline;
            return self.connections.send(to.session, ServerMessage::Release { deadline });
        }
        let asked = &self.models.of(&group.model).retention.asked;
        let Some(held) = &group.held else { return };
        if asked.get(&held.version) == Some(&to.group) {
            let generation = held.generation(to.shard);
            let version = held.version;
            self.connections.send(to.session, ServerMessage::Offload { version, generation });
        }
    }

    /// A shard could not copy its memory, or not open a session for the copy.
    pub(in crate::server) fn offload_failed(
        &mut self,
        from: MemberId,
        version: Version,
        generation: Generation,
        reason: String,
    ) {
        let MemberId { group: incarnation, shard, .. } = from;
        let group = self.groups.of(&incarnation);
        let asked = self.models.of(&group.model).retention.asked.get(&version);
        // The generation tells the present copy from an older copy of the same version, whose failure says nothing.
        let held = group.held.as_ref().and_then(|held| held.generations.get(shard as usize));
        if asked == Some(&incarnation) && held == Some(&generation) {
            let reason: String = reason.chars().take(DETAIL_CHARS).collect();
            self.fail_offload(incarnation, version, format!("shard {shard}: {reason}"));
        }
    }

    /// The offload that this group was asked for has failed.
    fn fail_offload(&mut self, owner: Incarnation, version: Version, reason: String) {
        let group = self.groups.of_mut(&owner);
        let model = self.models.of_mut(&group.model);
        model.retention.asked.remove(&version);
        if let Some(held) = &mut group.held {
            held.offload_failed = Some(reason);
        }
        self.agenda.wake(owner);
        self.agenda.note_change(&group.model);
    }

    /// A copy was sealed. If it is an offload, the request is fulfilled.
    pub(in crate::server) fn note_seal(&mut self, incarnation: Incarnation) {
        let group = self.groups.of(&incarnation);
        let model = self.models.of_mut(&group.model);
        let retention = &mut model.retention;
        if let Some(version) = group.offloads() {
            retention.asked.remove(&version);
            self.counters.offloads += 1;
        }
        if retention.is_asked() || !retention.replicas.is_empty() {
            self.agenda.note_change(&group.model);
        }
    }

    /// A group is at its end, or its content was refused. If the group is an offload or seed, its
    /// request fails. An offload that the group was asked for is withdrawn, unless the group is
    /// closing.
    pub(in crate::server) fn note_end(&mut self, incarnation: Incarnation) {
        let group = self.groups.of(&incarnation);
        if group.released {
            return;
        }
        if group.seeds().is_some() {
            return self.note_seed_end(incarnation);
        }
        let retention = &self.models.of(&group.model).retention;
        let closing = group.over.as_ref().is_some_and(|over| over.closing);
        if let Some(version) = group.offloads() {
            let owner = retention.asked.get(&version).copied();
            if let Some(owner) = owner.filter(|owner| group.is_offload_of(self.groups.of(owner))) {
                self.fail_offload(owner, version, format!("{} was lost", group.replica));
            }
        } else if !closing {
            self.end_hold(incarnation);
        }
    }

    /// Something has changed in a model: groups that were held back look again, and offload replicas that are not
    /// needed any more are released.
    pub(in crate::server) fn review_offloads(&mut self, name: &str) {
        let Some(model) = self.models.get(name) else { return };
        self.agenda.wake_all(model.retention.held_back.iter().copied());
        // One at a time: what is released does not count for the next.
        for replica in model.retention.replicas.clone() {
            let kept = !self.config.safeguards.on(Safeguard::OffloadRelease);
            if !kept && !self.books().group(replica).is_offload_needed() {
                self.counters.offloads_released += 1;
                self.release(replica);
            }
        }
    }

    /// The group is forgotten.
    pub(in crate::server) fn forget_offloads(&mut self, incarnation: Incarnation) {
        let model = &self.groups.of(&incarnation).model;
        let model = self.models.of_mut(model);
        model.retention.replicas.remove(&incarnation);
        model.seeding.replicas.remove(&incarnation);
    }

    /// Releases the replica: takes its copy off the list, and tells its shards to close.
    pub(in crate::server) fn release(&mut self, replica: Incarnation) {
        let group = self.groups.of_mut(&replica);
        group.released = true;
        let members = group.member_ids();
        self.copies().hide(replica);
        members.into_iter().for_each(|member| self.remind_offload(member));
    }
}

impl Books<'_> {
    /// An offload replica may be opened only while it is wanted.
    pub(in crate::server) fn check_offload(&self, open: &Open) -> Result<(), CallError> {
        let Role::Offload(version) = open.role else { return Ok(()) };
        let owner = self
            .models
            .get(&open.model)
            .and_then(|model| model.retention.asked.get(&version))
            .map(|owner| &self.groups.of(owner).replica);
        let wanted = owner.is_some_and(|owner| open.replica == offload_name(owner, version));
        let detail = format!(
            "an offload of version {version} by {} is not wanted any more; let go of the copy",
            open.replica
        );
        if wanted { Ok(()) } else { Err(CallError::Misuse { detail }) }
    }
}

impl GroupCtx<'_> {
    /// Whether an offload replica is still of use. Also true while the server can't tell yet.
    fn is_offload_needed(&self) -> bool {
        let GroupCtx { group, model, .. } = *self;
        let Some(version) = group.offloads().filter(|_| group.over.is_none()) else { return true };
        if group.released || group.recovering || model.recovers {
            return true;
        }
        let Some(held) = &group.held else {
            // The offload is on its way, and needed while its owner is. Once published it needs no owner.
            let owner = model.retention.asked.get(&version);
            return owner.is_some_and(|owner| group.is_offload_of(self.groups.of(owner)));
        };
        let alone = !self.is_countable(model, version, Some(group.incarnation));
        let alone = alone && self.config.safeguards.on(Safeguard::OffloadNeeded);
        held.fenced.is_none() && alone && self.is_retained(model, version)
    }
}

impl Books<'_> {
    /// A4: a version has one offload replica, once one has shown the bytes. T5: every request for
    /// an offload has an owner that waits, and lists name no group that is gone.
    pub(in crate::server) fn validate_offloads(
        &self,
        name: &str,
        model: &Model,
    ) -> Result<(), Violation> {
        let retention = &model.retention;
        for (version, owner) in &retention.asked {
            let held_back = retention.held_back.contains(owner);
            ensure(held_back, "T5", || {
                format!("{name}: nobody waits for an offload of {version}")
            })?;
        }
        let kept = retention.exact.values().flatten();
        for group in retention.held_back.iter().chain(&retention.replicas).chain(kept) {
            let known = self.groups.contains(group);
            ensure(known, "T5", || format!("{name}: group {group} is gone, but not forgotten"))?;
        }
        if model.recovers {
            return Ok(()); // nothing is released before all could have come over
        }
        let copies = retention.replicas.iter().filter_map(|replica| {
            let held = self.groups.of(replica).held.as_ref();
            held.filter(|held| held.visible && held.sealed).map(|held| (*replica, held))
        });
        let copies: Vec<_> = copies.collect();
        // While no offload has shown the bytes, none is released in favour of another.
        let proved = copies.iter().filter(|(_, held)| held.trust == Trust::Proved);
        for (replica, held) in proved {
            let others = copies.iter().filter(|(_, other)| other.version == held.version).count();
            ensure(others == 1, "A4", || {
                let name_of = &self.groups.of(replica).replica;
                format!("{name}: {name_of} is one of two offloads of {}", held.version)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "offload_tests.rs"]
mod tests;
