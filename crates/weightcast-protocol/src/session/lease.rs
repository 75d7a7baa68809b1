//! The lease: how long a session may act without hearing from the server (T1).

use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{CallError, Epoch, Incarnation, Safeguard, Span, Term, Ticket, Time};

/// What the server granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The life of the server.
    pub term: Term,
    /// The life of the group.
    pub incarnation: Incarnation,
    /// The training run that the group publishes into.
    pub epoch: Epoch,
    /// Its length.
    pub ttl: Span,
    /// When the message was sent that the server renewed it for.
    renewed_at: Time,
    heartbeat_at: Time,
    /// It ran out, or the server ended it: the term and the group stay known.
    pub(super) lost: bool,
}

impl Lease {
    pub(crate) fn new(ticket: &Ticket, ttl: Span) -> Self {
        Self {
            term: ticket.proof.term,
            incarnation: ticket.incarnation,
            epoch: ticket.epoch,
            ttl,
            renewed_at: Time(0),
            heartbeat_at: Time(0),
            lost: false,
        }
    }

    /// When the session must stop acting on it: earlier than the server evicts.
    pub(super) fn until(&self, margin_percent: u32) -> Time {
        self.renewed_at + self.ttl.scaled(100u64.saturating_sub(margin_percent.into()), 100)
    }

    pub(super) fn renew(&mut self, sent_at: Time) {
        self.renewed_at = self.renewed_at.max(sent_at);
    }
}

impl Session {
    pub(super) fn check_lease(&mut self, now: Time) {
        if self.ended.is_some() || self.lease_ends_at().is_none_or(|at| at > now) {
            return;
        }
        let Some(lease) = &mut self.lease else { return };
        lease.lost = true;
        if self.config.reconnect == Span(0) || self.closing.is_some() {
            let millis = lease.ttl.0 / 1_000_000;
            return self
                .lose_server(format!("no heartbeat was answered within its lease of {millis} ms"));
        }
        self.suspend(now);
        self.give_up_server(now);
    }

    /// When the session must stop acting on its lease.
    pub(super) fn lease_ends_at(&self) -> Option<Time> {
        let lease = self.lease.as_ref().filter(|lease| !lease.lost)?;
        Some(lease.until(self.config.margin_percent))
    }

    /// The server granted this when it was asked at `sent_at`, or again what it had granted.
    pub(super) fn take_lease(&mut self, granted: Lease, sent_at: Time) {
        match &mut self.lease {
            Some(lease) if lease.term == granted.term => lease.lost = false,
            _ => self.lease = Some(granted),
        }
        if let Some(lease) = &mut self.lease {
            lease.renew(sent_at);
        }
    }

    pub(super) fn heartbeat_acked(&mut self, now: Time, sent_at: Time) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.lost) {
            let from_answer = !self.config.safeguards.on(Safeguard::LeaseFromAsking);
            lease.renew(if from_answer { now } else { sent_at.min(now) });
        }
    }

    pub(super) fn next_heartbeat(&self) -> Option<Time> {
        self.lease.as_ref().filter(|_| self.link.is_open()).map(|lease| lease.heartbeat_at)
    }

    pub(super) fn heartbeat_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.next_heartbeat().is_none_or(|at| at > now) {
            return;
        }
        if let Some(lease) = &mut self.lease {
            let per_lease = self.config.heartbeats_per_lease.max(1).into();
            lease.heartbeat_at = now + lease.ttl.scaled(1, per_lease);
            self.outputs.push_back(Output::Send(ClientMessage::Heartbeat { sent_at: now.0 }));
        }
    }

    /// The server can't be reached: the session is over.
    pub(super) fn lose_server(&mut self, reason: String) {
        self.fail(CallError::ServerUnreachable { server: self.config.server.clone(), reason });
    }
}
