//! Checks what sessions bring from the last server (T6). Only statements that a server of this job
//! has vouched for are believed.

use crate::limits::RETAINED;
use crate::message::{Announcement, Open};
use crate::server::rooms::MembershipHandler;
use crate::server::stores::group::Member;
use crate::{CallError, Safeguard, TermProof, Ticket};

impl MembershipHandler<'_> {
    /// Whether a server of this job acted in a term.
    pub(super) fn is_proved(&self, proof: &TermProof) -> bool {
        self.config.ticket_key.has_proved(proof)
            || !self.config.safeguards.on(Safeguard::TicketCheck)
    }

    /// Refuses a ticket that no server of this job gave to this session, and a session that rejoins
    /// without a ticket.
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

    /// Whether a ticket is from this server's own line of terms.
    pub(super) fn is_ours(&self, ticket: &Ticket) -> bool {
        ticket.proof.origin == self.terms.own.origin
    }

    /// What is wrong with a shard's announcement. The announced version must be the version on its
    /// ticket.
    pub(super) fn check_claims(
        &self,
        member: &Member,
        announcement: &Announcement,
    ) -> Result<(), &'static str> {
        if announcement.retains.len() > RETAINED {
            return Err("says that more versions are retained for it than may be");
        }
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
