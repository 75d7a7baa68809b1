//! What sessions are given for the next server, and what is believed of what they bring from the last
//! one (T6): nothing but what a server of this job has vouched for.

use crate::message::{Announcement, Answer, Open, ServerMessage};
use crate::server::Server;
use crate::server::stores::group::{Group, Member};
use crate::ticket::TicketOwner;
use crate::{CallError, Mac, Proved, Safeguard, SessionId, TermProof, Ticket};

impl Server {
    /// What a session can show of its group.
    pub(in crate::server) fn ticket(&self, session: SessionId) -> Ticket {
        let entry = self.sessions.of(&session);
        let group = self.groups.of(&entry.group);
        let ticket = Ticket {
            proof: self.terms.own,
            incarnation: group.incarnation,
            epoch: group.epoch,
            held: self.proved(group, &group.members[&entry.shard]),
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
    pub(in crate::server) fn vouch(&mut self, session: SessionId, answer: &Answer) {
        if matches!(answer, Answer::Published { .. } | Answer::Committed { .. })
            && self.sessions.contains_key(&session)
        {
            let ticket = self.ticket(session);
            self.connections.send(session, ServerMessage::Vouched { ticket });
        }
    }

    /// Whether a server of this job acted in a term.
    pub(super) fn is_proved(&self, proof: &TermProof) -> bool {
        self.config.ticket_key.has_proved(proof)
            || !self.config.safeguards.on(Safeguard::TicketCheck)
    }

    /// Whether the ticket that a session shows was given to it, by a server of this job.
    pub(super) fn check_ticket(&self, open: &Open) -> Result<(), CallError> {
        let forged = open.ticket.as_ref().is_some_and(|ticket| {
            !self.config.ticket_key.has_granted(ticket, open.into())
                && self.config.safeguards.on(Safeguard::TicketCheck)
        });
        if forged || (open.rejoins && open.ticket.is_none()) {
            let reason = "what it brings from another reference server was not given to it by one \
                          of this job; the job's servers must have the same secret";
            let (replica, reason) = (open.replica.clone(), reason.to_owned());
            return Err(CallError::GroupBroken { replica, reason });
        }
        Ok(())
    }

    /// Whether a ticket is of the line of terms that this server's belongs to.
    pub(super) fn is_ours(&self, ticket: &Ticket) -> bool {
        ticket.proof.origin == self.terms.own.origin
    }

    /// What is wrong with what a shard says of itself. What its group held it has in writing.
    pub(super) fn check_claims(
        &self,
        member: &Member,
        announcement: &Announcement,
    ) -> Result<(), &'static str> {
        let Some(held) = &announcement.held else { return Ok(()) };
        if announcement.registration.is_none() {
            return Err("says that it holds a version in memory that is not registered");
        }
        let proved = member.proved.map(|proved| (proved.version, proved.catalog));
        if proved != Some((held.version, held.catalog))
            && self.config.safeguards.on(Safeguard::ClaimCheck)
        {
            return Err("says that it holds a version that no reference server has seen it hold");
        }
        Ok(())
    }
}
