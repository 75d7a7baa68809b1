//! Issues tickets, which sessions show to the next server (T6).

use crate::message::{Answer, ServerMessage};
use crate::server::rooms::CallHandler;
use crate::server::stores::group::{Group, Member};
use crate::server::stores::sessions::MemberId;
use crate::ticket::TicketOwner;
use crate::{Mac, Proved, Ticket};

impl CallHandler<'_> {
    /// The ticket with which a member proves its place in the group, and what the group holds.
    pub(in crate::server) fn ticket(&self, member: MemberId) -> Ticket {
        let group = self.groups.of(&member.group);
        let ticket = Ticket {
            proof: self.terms.own,
            incarnation: group.incarnation,
            epoch: group.epoch,
            held: self.proved(group, group.member(member.shard)),
            mac: Mac::default(),
        };
        let owner = TicketOwner {
            session: member.session,
            model: &group.model,
            replica: &group.replica,
            shard: member.shard,
            num_shards: group.num_shards,
            role: group.role,
        };
        self.config.ticket_key.grant(ticket, owner)
    }

    /// The version that the member's group held last, even if it was given up: the session may not
    /// know that yet.
    fn proved(&self, group: &Group, member: &Member) -> Option<Proved> {
        let held = member.proved?;
        let known = self.models.of(&group.model).known.get(&held.version);
        let content = known.filter(|content| content.catalog == held.catalog);
        Some(Proved { sum: content.and_then(|content| content.sum).or(held.sum), ..held })
    }

    /// Sends the member a new ticket before an answer that changes what the group holds.
    pub(super) fn vouch(&mut self, to: MemberId, answer: &Answer) {
        if matches!(answer, Answer::Published { .. } | Answer::Committed { .. }) {
            let ticket = self.ticket(to);
            self.connections.send(to.session, ServerMessage::Vouched { ticket });
        }
    }
}
