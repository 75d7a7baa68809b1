//! Leases: how the server notices a silent session, and ends its group (T1).

use crate::message::{Role, ServerMessage};
use crate::server::rooms::MembershipHandler;
use crate::server::stores::group::{Member, Over};
use crate::server::stores::timers::Timer;
use crate::{CallError, ConnectionId, Incarnation, SessionId, Time};

/// A timer this late, in percent of a lease, shows that the server itself was held up.
const LATE_PERCENT: u64 = 25;

/// How long a session may have no stream, in percent of a lease, until its process is taken for dead where that costs
/// little. A client that lives opens the next stream at once, and again and again.
const UNHEARD_PERCENT: u64 = 10;

impl MembershipHandler<'_> {
    pub(super) fn renew(&mut self, now: Time, session: SessionId) {
        let until = now + self.config.lease_with_margin();
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.lease_until = until;
        }
    }

    pub(in crate::server) fn heartbeat(&mut self, now: Time, session: SessionId, sent_at: u64) {
        self.renew(now, session);
        self.connections.send(session, ServerMessage::HeartbeatAck { sent_at });
    }

    /// A stream broke, most likely because its process has died. What the group reads goes on, and
    /// takes no place at its sources any more, so that others need not wait for the lease to end.
    pub(in crate::server) fn lose_stream(&mut self, now: Time, connection: ConnectionId) {
        let Some(session) = self.connections.unbind(connection) else { return };
        if let Some(entry) = self.sessions.get(&session) {
            let group = entry.group;
            let patience = self.config.lease.scaled(UNHEARD_PERCENT, 100);
            self.timers.set(now + patience, Timer::Unheard(session));
            self.transfers().lose_sight(group);
        }
    }

    /// A session has had no stream for a while. Until it has one, its group gets no source, and keeps no source
    /// from giving its copy up: the lease, which ends later, decides about all else.
    pub(in crate::server) fn unheard_timer(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let group = entry.group;
        self.groups.of_mut(&group).unheard = true;
        self.transfers().stop_waiting_for(group);
    }

    /// A session has a stream. Its group is heard again once all of its sessions have one.
    pub(super) fn hear(&mut self, session: SessionId) {
        self.timers.cancel(Timer::Unheard(session));
        let incarnation = self.sessions.of(&session).group;
        let group = self.groups.of_mut(&incarnation);
        let heard = |member: &Member| self.connections.stream(member.session).is_some();
        if group.unheard && group.members.values().all(heard) {
            group.unheard = false;
            self.agenda.wake(incarnation);
        }
    }

    /// A server that was held up could not hear its clients: all leases begin anew, and the times
    /// to come over are postponed.
    pub(in crate::server) fn excuse_delay(&mut self, now: Time) {
        // Renewals that queued up take a few rounds of the runtime to arrive, each as late. The
        // margin covers shorter delays.
        let much = self.config.lease.scaled(LATE_PERCENT, 100);
        if self.timers.next().is_none_or(|due| now < due + much) {
            return;
        }
        let until = now + self.config.lease_with_margin();
        for entry in self.sessions.values_mut() {
            entry.lease_until = entry.lease_until.max(until);
        }
        self.timers.postpone(until, |timer| {
            matches!(timer, Timer::Recovery(_) | Timer::Window | Timer::Unheard(_))
        });
    }

    /// A lease may have run out. Renewals do not move the timer, so compare the time first.
    pub(in crate::server) fn lease_timer(&mut self, now: Time, session: SessionId) {
        let Some(entry) = self.sessions.get(&session) else { return };
        if entry.lease_until > now {
            self.timers.set(entry.lease_until, Timer::Lease(session));
            return;
        }
        let (incarnation, shard) = (entry.group, entry.shard);
        self.counters.evictions += 1;
        let error = self.groups.of(&incarnation).broken(format!(
            "shard {shard} has not renewed its lease; its process or network died"
        ));
        // Break the group first: the evicted session is told as well, if it has a stream.
        self.break_group(incarnation, error);
        self.remove_member(session);
    }

    /// Ends a group: takes its copy off the list, cuts off its readers, and tells its members. The
    /// group stays in the books until its members have left or their leases have run out, so that
    /// late calls get the error.
    pub(in crate::server) fn break_group(&mut self, incarnation: Incarnation, error: CallError) {
        if !self.end_group(incarnation, error.clone(), false) {
            return;
        }
        let lost = self.groups.of(&incarnation).replica.clone();
        self.transfers().cut_readers(incarnation, &format!("replica {lost} is gone"));
        for member in self.groups.of(&incarnation).members.values() {
            self.connections.send(member.session, ServerMessage::Broken { error: error.clone() });
        }
    }

    /// Takes a group's copy off the list and ends the group's call. False if the group was broken
    /// before, or was closing and closes again: a closing group can still break.
    pub(super) fn end_group(
        &mut self,
        incarnation: Incarnation,
        error: CallError,
        closing: bool,
    ) -> bool {
        let Some(group) = self.groups.get_mut(&incarnation) else { return false };
        if group.over.as_ref().is_some_and(|over| closing || !over.closing) {
            return false;
        }
        group.over = Some(Over { error: error.clone(), closing });
        let (name, replica) = (group.model.clone(), group.replica.clone());
        let active = group.active.is_some();
        let model = self.models.of_mut(&name);
        if model.replicas.get(&replica) == Some(&incarnation) {
            model.replicas.remove(&replica);
        }
        let held = group.held.as_ref().filter(|held| held.visible && group.role == Role::Rollout);
        if let Some(held) = held {
            model.depart(&replica, held.version);
        }
        self.copies().hide(incarnation);
        // A `wait` for all rollouts has one rollout less to wait for, even if the group held
        // nothing.
        self.agenda.note_change(&name);
        if active {
            self.transfers().abandon_transfer(incarnation);
            self.calls().finish(incarnation, Err(error));
        }
        self.versions().drop_all_kept(incarnation);
        self.durability().note_end(incarnation);
        self.agenda.wake(incarnation);
        true
    }

    /// A member has left or was evicted. The group is forgotten with its last member.
    pub(super) fn remove_member(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.remove(&session) else { return };
        self.timers.cancel(Timer::Lease(session));
        self.timers.cancel(Timer::Unheard(session));
        self.connections.end(session);
        let group = self.groups.of_mut(&entry.group);
        if let Some(member) = group.members.remove(&entry.shard) {
            let host = &member.location.host;
            if !group.members.values().any(|other| other.location.host == *host) {
                self.models.of_mut(&group.model).hosts.remove(host, entry.group);
            }
            let registered = member.registration.map(|registration| registration.layout);
            registered.into_iter().for_each(|layout| self.blobs.release(layout));
        }
        if group.members.is_empty() {
            self.durability().end_hold(entry.group);
            self.durability().forget_offloads(entry.group);
            self.timers.forget_group(entry.group);
            self.agenda.groups.remove(&entry.group);
            let Some(group) = self.groups.remove(&entry.group) else { return };
            self.models.leave(group.model);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use crate::server::Server;
    use crate::server::ServerConfig;
    use crate::server::props::SEQ;

    /// A group of two shards with leases of 100, for which the server waits 120.
    fn leased() -> (Server, Incarnation, [SessionId; 2]) {
        let (lease, margin_percent) = (Span(100), 20);
        let mut server = Server::new(ServerConfig { lease, margin_percent, ..Default::default() });
        let group = server.prop("g", 2);
        let sessions = [0, 1].map(|shard| server.session(group, shard));
        for session in sessions {
            server.membership().renew(Time(1_000), session);
            server.timers.set(Time(1_120), Timer::Lease(session));
        }
        (server, group, sessions)
    }

    fn until(server: &Server, session: SessionId) -> Time {
        server.sessions[&session].lease_until
    }

    #[test]
    fn a_lease_is_waited_for_with_its_margin_from_when_it_was_renewed() {
        let (mut server, _, [one, other]) = leased();
        assert_eq!(server.config.lease_with_margin(), Span(120));
        server.membership().heartbeat(Time(1_050), one, 7);
        assert_eq!((until(&server, one), until(&server, other)), (Time(1_170), Time(1_120)));
        server.membership().renew(Time(1_060), SessionId(99));
        for (margin, expected) in [(0, 100), (1, 101), (10, 110), (100, 200)] {
            server.config.margin_percent = margin;
            assert_eq!(server.config.lease_with_margin(), Span(expected));
        }
    }

    #[test]
    fn a_lease_ends_at_its_last_moment_and_not_before() {
        for (now, ended) in [(1_119, false), (1_120, true), (1_121, true)] {
            let (mut server, group, [one, other]) = leased();
            server.membership().lease_timer(Time(now), one);
            assert_eq!(server.counters.evictions, u64::from(ended), "{now}");
            assert_eq!(server.sessions.contains(&one), !ended);
            assert_eq!(server.groups[&group].over.is_some(), ended);
            assert!(server.sessions.contains(&other), "it is told, and leaves by itself");
        }
        // One that was renewed meanwhile is waited for again.
        let (mut server, _, [one, _]) = leased();
        server.membership().renew(Time(1_119), one);
        server.handle_timeout(Time(1_121));
        assert_eq!(server.counters.evictions, 1, "the other one");
        assert_eq!(server.next_timeout(), Some(Time(1_239)));
    }

    #[test]
    fn who_listens_late_by_a_quarter_of_a_lease_has_not_heard_its_clients() {
        for (late, excused) in [(0, false), (24, false), (25, true), (5_000, true)] {
            let (mut server, group, [one, other]) = leased();
            server.membership().renew(Time(9_000), other);
            let silent = [Timer::Recovery(group), Timer::Window, Timer::Unheard(other)];
            let others = [Timer::Drain(group), Timer::Call(group, SEQ)];
            for timer in silent.iter().chain(&others) {
                server.timers.set(Time(1_130), *timer);
            }
            let now = Time(1_120 + late);
            server.excuse_delay(now);
            let expected = if excused { now + Span(120) } else { Time(1_120) };
            assert_eq!(until(&server, one), expected, "{late}");
            assert_eq!(until(&server, other), Time(9_120), "nobody has less than before");
            let mut due = Vec::new();
            while let Some(timer) = server.timers.pop_due(Time(1_139).max(now)) {
                due.push(timer);
            }
            assert!(others.iter().all(|timer| due.contains(timer)));
            assert!(silent.iter().all(|timer| due.contains(timer) != excused), "{late}: {due:?}");
        }
        // Nothing was due: there is nothing to excuse.
        let mut server = Server::new(ServerConfig::default());
        server.excuse_delay(Time(u64::MAX));
        assert_eq!(server.next_timeout(), None);
    }

    fn error(text: &str) -> CallError {
        CallError::Misuse { detail: text.to_owned() }
    }

    #[test]
    fn a_group_ends_once_and_who_closes_can_still_break() {
        for (before, closing, ends) in [
            (None, false, true),
            (None, true, true),
            (Some(true), false, true),
            (Some(true), true, false),
            (Some(false), true, false),
            (Some(false), false, false),
        ] {
            let (mut server, group, _) = leased();
            if let Some(closing) = before {
                assert!(server.membership().end_group(group, error("before"), closing));
            }
            server.agenda.groups.clear();
            assert_eq!(
                server.membership().end_group(group, error("now"), closing),
                ends,
                "{before:?}"
            );
            let over = server.groups[&group].over.as_ref().unwrap();
            let expected = if ends { ("now", closing) } else { ("before", before.unwrap()) };
            assert_eq!((over.error.clone(), over.closing), (error(expected.0), expected.1));
            assert_eq!(server.agenda.groups.contains(&group), ends);
        }
    }

    #[test]
    fn what_ends_lets_its_name_its_call_and_its_copy_go() {
        use crate::server::props::version;
        for (role, shown, departs) in [
            (Role::Rollout, true, true),
            (Role::Rollout, false, false),
            (Role::Trainer, true, false),
        ] {
            let (mut server, group, _) = leased();
            server.at(group).role = role;
            server.holds(group, version(1));
            if !shown {
                server.copies().hide(group);
            }
            server.has_called(group, crate::message::Call::List);
            server.membership().end_group(group, error("over"), true);
            let model = &server.models["policy"];
            assert!(model.replicas.is_empty() && model.visible.is_empty());
            let departed = [("g".to_owned(), version(1))];
            assert!(model.departed.iter().eq(departed.iter().filter(|_| departs)), "{role:?}");
            assert!(server.agenda.models.contains("policy"));
            let call = &server.groups[&group].transactions[&SEQ];
            assert_eq!(call.result, Some(Err(error("over"))));
        }
        // The name may belong to the next life by then.
        let (mut server, group, _) = leased();
        let next = server.prop("g", 2);
        server.membership().end_group(group, error("over"), true);
        assert_eq!(server.models["policy"].replicas.get("g"), Some(&next));
    }

    #[test]
    fn the_last_member_takes_the_group_with_it() {
        let (mut server, group, [one, other]) = leased();
        for (session, left) in [(one, 1), (one, 1), (SessionId(99), 1), (other, 0)] {
            server.membership().remove_member(session);
            assert_eq!(server.groups.get(&group).map_or(0, |group| group.members.len()), left);
            assert_eq!(server.sessions.len(), left);
            assert_eq!(server.timers.iter().count(), left);
            assert_eq!(server.models.vacant.contains("policy"), left == 0);
            assert_eq!(server.models["policy"].groups, left);
        }
    }
}
