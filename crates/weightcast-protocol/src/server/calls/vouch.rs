//! Tickets: what sessions are given to show the next server (T6).

use crate::message::{Answer, ServerMessage};
use crate::server::rooms::CallHandler;
use crate::server::stores::group::{Group, Member};
use crate::ticket::TicketOwner;
use crate::{Mac, Proved, SessionId, Ticket};

impl CallHandler<'_> {
    /// What a session can show of its group.
    pub(in crate::server) fn ticket(&self, session: SessionId) -> Ticket {
        let entry = self.sessions.of(&session);
        let group = self.groups.of(&entry.group);
        let ticket = Ticket {
            proof: self.terms.own,
            incarnation: group.incarnation,
            epoch: group.epoch,
            held: self.proved(group, group.member(entry.shard)),
            mac: Mac::default(),
        };
        let owner = TicketOwner {
            session,
            model: &group.model,
            replica: &group.replica,
            shard: entry.shard,
            num_shards: group.num_shards,
            role: group.role,
        };
        self.config.ticket_key.grant(ticket, owner)
    }

    /// What its group has held last: the session may not know yet that this was given up.
    fn proved(&self, group: &Group, member: &Member) -> Option<Proved> {
        let held = member.proved?;
        let known = self.models.of(&group.model).known.get(&held.version);
        let content = known.filter(|content| content.catalog == held.catalog);
        Some(Proved { sum: content.and_then(|content| content.sum).or(held.sum), ..held })
    }

    /// Gives a session what it needs to prove an answer that it gets next.
    pub(super) fn vouch(&mut self, session: SessionId, answer: &Answer) {
        if matches!(answer, Answer::Published { .. } | Answer::Committed { .. })
            && self.sessions.contains_key(&session)
        {
            let ticket = self.ticket(session);
            self.connections.send(session, ServerMessage::Vouched { ticket });
        }
    }
}
