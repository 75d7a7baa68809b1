//! `close`: one shard leaves, and with it the group; readers finish first, within a bound (F30).

use super::Server;
use crate::message::ServerMessage;
use crate::{CallError, Incarnation, SessionId, Span, Time};

impl Server {
    pub(super) fn close(&mut self, now: Time, session: SessionId, deadline: Span) {
        let entry = &self.sessions[&session];
        let (incarnation, shard) = (entry.group, entry.shard);
        let group = self.groups.get_mut(&incarnation).expect("sessions have a group");
        group.members.get_mut(&shard).expect("sessions are members").closing = true;
        let replica = group.replica.clone();
        let reason = format!("shard {shard} was closed");
        self.end_group(incarnation, CallError::GroupBroken { replica, reason }, true);
        let drain = Span(deadline.0.min(self.config.drain_deadline.0));
        self.drain_until(incarnation, now + drain);
        self.hold_until(now, incarnation, now + deadline);
        self.agenda.insert(incarnation);
    }

    /// Lets those go that have asked to, once nobody reads from the group and its copy is not the
    /// last one.
    pub(super) fn advance_closing(&mut self, now: Time, incarnation: Incarnation) {
        let drained = self.edges.load(incarnation) == 0;
        let closing = self.groups[&incarnation].members.values().any(|m| m.closing);
        if closing && (!self.may_give_up(now, incarnation, drained) || !drained) {
            return;
        }
        let group = &self.groups[&incarnation];
        let leaving: Vec<SessionId> =
            group.members.values().filter(|m| m.closing).map(|m| m.session).collect();
        for session in leaving {
            self.send(session, ServerMessage::Closed);
            self.remove_member(session);
        }
    }
}
