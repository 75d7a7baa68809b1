//! The lease: how long a session may act without hearing from the server (T1).

use serde::{Deserialize, Serialize};

use super::config::SessionConfig;
use crate::message::ClientMessage;
use crate::{Epoch, Incarnation, Safeguard, Span, Term, Ticket, Time};

/// A lease as the server granted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The server's term.
    pub term: Term,
    /// The group's incarnation.
    pub incarnation: Incarnation,
    /// The training run that the group publishes into.
    pub epoch: Epoch,
    /// Length of the lease.
    pub ttl: Span,
    /// When the client sent the message for which the server last renewed the lease.
    renewed_at: Time,
    heartbeat_at: Time,
    /// The lease ran out, or the server ended it. Term and group stay known.
    lost: bool,
}

impl Lease {
    pub(super) fn new(ticket: &Ticket, ttl: Span) -> Self {
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

    /// Whether the session may act on the lease.
    pub(super) fn lives(&self) -> bool {
        !self.lost
    }

    /// The session stops acting on the lease. Returns whether it acted on the lease until now.
    pub(super) fn lose(&mut self) -> bool {
        !std::mem::replace(&mut self.lost, true)
    }

    /// When the session must stop acting on the lease: before the server evicts it.
    pub(super) fn until(&self, margin_percent: u32) -> Time {
        self.renewed_at + self.ttl.scaled(100u64.saturating_sub(margin_percent.into()), 100)
    }

    /// The lease after a server granted `granted` for a message of `sent_at`. In the same term the
    /// old lease goes on.
    pub(super) fn after(old: Option<Self>, granted: Self, sent_at: Time) -> Self {
        let mut lease = match old {
            Some(old) if old.term == granted.term => Self { lost: false, ..old },
            _ => granted,
        };
        lease.renew(sent_at);
        lease
    }

    fn renew(&mut self, sent_at: Time) {
        self.renewed_at = self.renewed_at.max(sent_at);
    }

    /// The server has acknowledged the heartbeat that was sent then.
    pub(super) fn acknowledged(&mut self, now: Time, sent_at: Time, config: &SessionConfig) {
        let from_answer = !config.safeguards.on(Safeguard::LeaseFromAsking);
        self.renew(if from_answer { now } else { sent_at.min(now) });
    }

    /// When the next heartbeat is due.
    pub(super) fn heartbeat_at(&self) -> Time {
        self.heartbeat_at
    }

    /// A heartbeat to be sent now.
    pub(super) fn heartbeat(&mut self, now: Time, config: &SessionConfig) -> ClientMessage {
        self.beats(now, config);
        ClientMessage::Heartbeat { sent_at: now.0 }
    }

    /// A message that renews the lease leaves now, so the next heartbeat is due an interval later.
    pub(super) fn beats(&mut self, now: Time, config: &SessionConfig) {
        let per_lease = config.heartbeats_per_lease.max(1).into();
        self.heartbeat_at = now + self.ttl.scaled(1, per_lease);
    }
}
