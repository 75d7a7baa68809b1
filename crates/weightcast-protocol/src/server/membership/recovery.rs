//! Groups that come over from an earlier term: whole and all alike, or not at all (G1, G4, T3).
//!
//! Each shard announces which call was answered to it last, and what it holds. If all shards agree,
//! every answer that a shard got is known to all of them, and the group goes on: its copy is
//! listed, and the pending call is made again. If the shards differ, no server can tell what the
//! other shards were told, and the group breaks.

use crate::message::{Announcement, Holding, Open, Role, ServerMessage};
use crate::server::rooms::MembershipHandler;
use crate::server::stores::model::Content;
use crate::server::stores::observed::Observed;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::timers::Timer;
use crate::{CallError, Generation, Incarnation, Safeguard, Ticket, Time};

impl MembershipHandler<'_> {
    /// A session of an earlier term: finds its group, or founds it under the old incarnation.
    pub(super) fn rejoin(
        &mut self,
        now: Time,
        open: &Open,
        ticket: &Ticket,
    ) -> Result<(), CallError> {
        let incarnation = ticket.incarnation;
        let refuse = |reason: &str| {
            let (replica, reason) = (open.replica.clone(), reason.to_owned());
            Err(CallError::GroupBroken { replica, reason })
        };
        if open.role == Role::Trainer && !self.is_ours(ticket) {
            // The ticket's line counted its runs by itself, so its runs are neither earlier nor
            // later than the runs here.
            return refuse("it opened before the run that it is to follow was known here");
        }
        let live = self.models.get(&open.model).and_then(|m| m.replicas.get(&open.replica));
        match live.copied() {
            Some(live) if live != incarnation => {
                refuse("another group had taken its name when it came over to this server")
            }
            Some(_) => {
                let group = self.groups.of(&incarnation);
                let fits = group.recovering
                    && (group.num_shards, group.role) == (open.num_shards, open.role)
                    && (group.epoch == ticket.epoch || !self.is_ours(ticket))
                    && !group.members.contains_key(&open.shard);
                if fits { Ok(()) } else { refuse("it went on, or ended, without this shard") }
            }
            None if self.groups.contains(&incarnation) => {
                refuse("it ended while it came over to this server")
            }
            None => {
                self.found_group(open, incarnation)?;
                self.groups.of_mut(&incarnation).recovering = true;
                self.timers.set(now + self.recovery_time(), Timer::Recovery(incarnation));
                Ok(())
            }
        }
    }

    pub(in crate::server) fn announce(
        &mut self,
        now: Time,
        from: MemberId,
        announcement: Announcement,
    ) {
        let group = self.groups.of(&from.group);
        let member = group.member(from.shard);
        if let Some(over) = &group.over {
            // The end of the group is told once, and this shard may have missed it. Tell the shard
            // now; otherwise it keeps its memory until its own deadline.
            let error = over.error.clone();
            return self.connections.send(from.session, ServerMessage::Broken { error });
        }
        let before = member.announced.as_ref();
        let wrong = match self.check_claims(member, &announcement) {
            Err(wrong) if group.recovering => wrong,
            Ok(()) if group.recovering => return self.take_claims(now, from, announcement),
            _ if before.is_some_and(|before| before.generation == announcement.generation) => {
                return self.connections.send(from.session, ServerMessage::Recovered);
            }
            _ => "lost its lease, and has given up what it was doing",
        };
        let error = group.broken(format!("shard {} {wrong}", from.shard));
        self.break_group(from.group, error);
    }

    /// Takes one shard's announcement. The group goes on once all its shards have announced.
    fn take_claims(&mut self, now: Time, from: MemberId, announcement: Announcement) {
        let group = self.groups.of_mut(&from.group);
        group.member_mut(from.shard).announced = Some(announcement);
        let here = group.members.values().filter(|m| m.announced.is_some()).count();
        if here == group.num_shards as usize {
            self.recover(now, from.group);
            self.durability().seed_came_over(now, from.group);
        }
    }

    /// All shards have announced: the group goes on, or breaks if they differ.
    fn recover(&mut self, now: Time, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let announced: Vec<Announcement> =
            group.members.values().filter_map(|m| m.announced.clone()).collect();
        if let Some(reason) = difference(&announced)
            && self.config.safeguards.on(Safeguard::EqualRecovery)
        {
            let error = group.broken(reason);
            return self.break_group(incarnation, error);
        }
        group.recovering = false;
        group.registered = announced.iter().all(|shard| shard.registration.is_some());
        for (member, announced) in group.members.values_mut().zip(&announced) {
            member.last_seq = announced.answered;
            member.registration = announced.registration;
            if let Some(registration) = announced.registration {
                self.blobs.retain(registration.layout);
            }
        }
        let epoch = group.epoch;
        let model = group.model.clone();
        let members = group.member_ids();
        let model = self.models.of_mut(&model);
        model.epoch = model.epoch.max(epoch);
        self.counters.recoveries += 1;
        for member in members {
            self.connections.send(member.session, ServerMessage::Recovered);
        }
        for version in announced.iter().flat_map(|shard| &shard.retains) {
            model.retention.keep(incarnation, *version);
        }
        let held: Vec<(Generation, Holding)> = announced
            .iter()
            .filter_map(|shard| shard.held.map(|held| (shard.generation, held)))
            .collect();
        if held.len() == announced.len() {
            self.restore(now, incarnation, &held);
        }
        // The recovered copy may free other groups that each seemed to hold the last copy of a
        // version.
        self.agenda.wake_all(self.groups.ids().copied());
    }

    /// Lists the group's copy again, unless the copy is refused or was withdrawn.
    fn restore(&mut self, now: Time, incarnation: Incarnation, held: &[(Generation, Holding)]) {
        let Holding { version, catalog, .. } = held[0].1;
        // A version that an earlier server sealed keeps its sum; holders do not define it anew.
        // Every `proved` of the group is about this version: `check_claims` compared each shard's
        // claim with its ticket, and `difference` compared the claims with each other.
        let mut members = self.groups.of(&incarnation).members.values();
        let sum = members.find_map(|member| member.proved?.sum);
        let generations = held.iter().map(|(generation, _)| *generation).collect();
        self.copies().add(incarnation, version, catalog, generations);
        let group = self.groups.of_mut(&incarnation);
        group.replicated = Some(version);
        let copy = group.copy_mut();
        let sums =
            held.iter().zip(0u32..).filter_map(|((_, held), shard)| Some((shard, held.sums?)));
        copy.sums = sums.collect();
        let sealed = copy.sums.len() == held.len();
        let name = group.model.clone();
        let model = self.models.of_mut(&name);
        model.epoch = model.epoch.max(version.epoch);
        if !model.known.contains_key(&version) {
            let content = Content { catalog, sum, since: Observed(now) };
            self.copies().remember(&name, version, content);
            // Readers that have read the whole version can commit, now that its sum is known.
            self.agenda.wake_all(self.edges.filling(&name, version).filter(|_| sum.is_some()));
        }
        let known = &self.models.of(&name).known;
        let other_catalog = known.get(&version).is_none_or(|known| known.catalog != catalog);
        if held.iter().any(|(_, held)| held.refused) {
            self.versions().fence(incarnation, version, "an earlier server has refused it");
        } else if other_catalog {
            self.versions().fence(
                incarnation,
                version,
                "the names, dtypes or shapes of its tensors differ",
            );
        } else if sealed {
            self.versions().check_seal(incarnation);
        }
        if held.iter().any(|(_, held)| held.withdrawn) {
            self.copies().hide(incarnation);
        }
    }

    /// The group's time to come over has passed.
    pub(in crate::server) fn recovery_timer(&mut self, incarnation: Incarnation) {
        let Some(group) = self.groups.get(&incarnation).filter(|group| group.recovering) else {
            return;
        };
        let error = group.broken("not all of its shards came over to this reference server");
        self.break_group(incarnation, error);
    }
}

/// How the announcements of a group's shards differ, if they do.
fn difference(shards: &[Announcement]) -> Option<String> {
    let first = shards.first()?;
    let version = |shard: &Announcement| shard.held.map(|held| (held.version, held.catalog));
    let other = |differs: &dyn Fn(&Announcement) -> bool| shards.iter().position(differs);
    if let Some(shard) = other(&|shard| shard.answered != first.answered) {
        return Some(format!(
            "when the reference server was lost, shard 0 had an answer to call {}, shard {shard} to \
             call {}",
            first.answered, shards[shard].answered
        ));
    }
    if let Some(shard) = other(&|shard| shard.retains != first.retains) {
        return Some(format!(
            "when the reference server was lost, shards 0 and {shard} had different versions retained"
        ));
    }
    let shard = other(&|shard| {
        version(shard) != version(first)
            || shard.registration.is_some() != first.registration.is_some()
    })?;
    Some(format!(
        "when the reference server was lost, shards 0 and {shard} held different versions"
    ))
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
