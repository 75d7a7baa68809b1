//! `close`: one shard leaves, which ends its group. Readers finish first, within a bound (F30).

use crate::message::ServerMessage;
use crate::server::rooms::MembershipHandler;
use crate::server::stores::sessions::MemberId;
use crate::{Incarnation, SessionId, Span, Time};

impl MembershipHandler<'_> {
    pub(in crate::server) fn close(&mut self, now: Time, from: MemberId, deadline: Span) {
        let MemberId { group: incarnation, shard, .. } = from;
        let group = self.groups.of_mut(&incarnation);
        group.member_mut(shard).closing = true;
        let error = group.broken(format!("shard {shard} was closed"));
        self.end_group(incarnation, error, true);
        let drain = Span(deadline.0.min(self.config.drain_deadline.0));
        self.transfers().drain_until(incarnation, now + drain);
        self.durability().hold_until(now, incarnation, now + deadline);
        self.agenda.wake(incarnation);
    }

    /// Lets closing members leave, once the group has no readers and its copy is not the last one.
    pub(in crate::server) fn advance_closing(&mut self, now: Time, incarnation: Incarnation) {
        let drained = self.edges.load(incarnation) == 0;
        let closing = self.groups.of(&incarnation).members.values().any(|m| m.closing);
        // Ask before the group is drained as well: the copy can be offloaded meanwhile.
        if closing && (!self.durability().may_give_up(now, incarnation, drained) || !drained) {
            return;
        }
        let group = self.groups.of(&incarnation);
        let leaving: Vec<SessionId> =
            group.members.values().filter(|m| m.closing).map(|m| m.session).collect();
        for session in leaving {
            self.connections.send(session, ServerMessage::Closed);
            self.remove_member(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallError;
    use crate::server::Server;
    use crate::server::ServerConfig;
    use crate::server::props::version;

    #[test]
    fn readers_have_the_time_that_was_given_up_to_a_bound_and_an_offload_up_to_another() {
        for (deadline, drain, hold) in
            [(5, 5, 5), (20, 20, 20), (21, 20, 21), (50, 20, 50), (51, 20, 50)]
        {
            let (drain_deadline, offload_deadline) = (Span(20), Span(50));
            let config = ServerConfig { drain_deadline, offload_deadline, ..Default::default() };
            let mut server = Server::new(config);
            let [source, reader] = ["source", "reader"].map(|name| server.prop(name, 2));
            server.holds(source, version(1));
            server.reads(reader, version(1), &[source]);
            let member = server.member(source, 1);
            server.membership().close(Time(100), member, Span(deadline));
            let group = &server.groups[&source];
            assert_eq!(group.drain_until, Some(Time(100 + drain)), "{deadline}");
            assert_eq!(group.hold_until, Some(Time(100 + hold)), "{deadline}");
            let over = group.over.as_ref().unwrap();
            let (replica, reason) = ("source".to_owned(), "shard 1 was closed".to_owned());
            assert_eq!(over.error, CallError::GroupBroken { replica, reason });
            assert!(over.closing && group.members[&1].closing && !group.members[&0].closing);
        }
    }

    #[test]
    fn who_has_asked_to_leave_goes_once_nobody_reads_and_the_others_stay() {
        let mut server = Server::new(ServerConfig::default());
        let [source, reader] = ["source", "reader"].map(|name| server.prop(name, 2));
        server.holds(source, version(1));
        server.reads(reader, version(1), &[source]);
        let member = server.member(source, 1);
        server.membership().close(Time(0), member, Span(9));
        let members = |server: &Server| {
            server.groups.get(&source).map(|group| group.members.keys().copied().collect())
        };
        server.membership().advance_closing(Time(0), source);
        assert_eq!(members(&server), Some(vec![0, 1]), "it is read from");
        server.transfers().release_edge(reader);
        server.membership().advance_closing(Time(0), source);
        assert_eq!(members(&server), Some(vec![0]), "the other one has not asked");
        let member = server.member(source, 0);
        server.membership().close(Time(0), member, Span(9));
        server.membership().advance_closing(Time(0), source);
        assert_eq!(members(&server), None);
    }
}
