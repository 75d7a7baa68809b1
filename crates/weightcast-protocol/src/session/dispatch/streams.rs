//! The way to the servers: streams that open and break, and servers that open the session, refuse
//! it, or do not act.

use crate::message::ClientMessage;
use crate::session::Session;
use crate::session::host::Output;
use crate::session::lease::Lease;
use crate::session::link::LinkState;
use crate::session::rivals::Rivals;
use crate::{CallError, Safeguard, Span, Term, TermProof, Ticket, Time};

impl Session {
    /// The stream asked for by the last `Connect` is there. Void if it was given up meanwhile.
    pub fn handle_connected(&mut self, now: Time) {
        // Look before the tick, which may ask for another stream: this input is about the stream
        // before.
        let connects = self.link.connects();
        self.tick(now);
        if self.ended.is_none() && connects && self.link.connects() {
            self.send_open(now);
        }
    }

    /// The stream asked for by the last `Connect` broke, or could not be opened.
    pub fn handle_disconnected(&mut self, now: Time) {
        let connects = self.link.connects();
        self.tick(now);
        if matches!(self.link.state(), LinkState::Down { .. }) {
            return; // the stream was given up before
        }
        if self.link.connects() && !connects {
            return; // the stream was given up just now; the next one is asked for, and has not failed
        }
        self.lose_stream(now);
        if self.lease.is_none() && self.closing.is_some() {
            self.left();
        }
    }

    pub(in crate::session) fn reconnect_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.link.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        match self.link.state() {
            LinkState::Refused { .. } => self.send_open(now),
            LinkState::Connecting { .. } | LinkState::Opening { .. } => self.lose_stream(now),
            LinkState::Down { .. } | LinkState::Open => {
                self.outputs.push_back(self.link.connect(now, &self.config));
            }
        }
    }

    fn lose_stream(&mut self, now: Time) {
        let stays = self.lease.as_ref().is_some_and(Lease::lives);
        self.link.lost(now, &self.config, stays);
    }

    fn send_open(&mut self, now: Time) {
        let mut open = self.config.open.clone();
        open.ticket = self.ticket;
        open.rejoins = self.lease.is_some() && self.calls.any_answered();
        open.activate = self.link.open(now, &self.config);
        self.outputs.push_back(Output::Send(ClientMessage::Open(open)));
    }

    /// A server has opened the session, in its term.
    pub(in crate::session) fn opened(&mut self, now: Time, ticket: Ticket, ttl: Span) {
        let LinkState::Opening { sent_at, .. } = self.link.state() else { return };
        let granted = Lease::new(&ticket, ttl);
        if granted.term < self.term && self.config.safeguards.on(Safeguard::TermOrder) {
            return self.lose_stream(now); // no way back (T3)
        }
        if let Err(error) = self.go_over(now, &granted) {
            return self.fail(error);
        }
        let asked_to_act = self.link.opened(now);
        let rivals_may_act = asked_to_act || self.term != granted.term;
        self.term = granted.term;
        self.ticket = Some(ticket);
        self.refused = None;
        self.lease = Some(Lease::after(self.lease.take(), granted, sent_at));
        if rivals_may_act {
            self.rivals = Rivals::of(self.link.server(), self.config.servers, now);
        }
        self.heartbeat_if_due(now);
        if self.suspended.is_some() {
            self.announce();
        } else {
            self.send_again(now);
        }
    }

    /// Leaves the term of the lease if another term is granted. An error ends the session: it can't
    /// go over to that term, or the server takes it for another shard.
    fn go_over(&mut self, now: Time, granted: &Lease) -> Result<(), CallError> {
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.term != granted.term) {
            if self.config.reconnect == Span(0) {
                let reason = "it was restarted and knows nothing of this session";
                return Err(self.unreachable(reason.into()));
            }
            if lease.lives() {
                self.suspend(now);
            }
        }
        match &self.lease {
            Some(lease) if lease.incarnation != granted.incarnation => {
                let replica = self.config.open.replica.clone();
                let reason = "the reference server took this shard for another".to_owned();
                Err(CallError::GroupBroken { replica, reason })
            }
            _ => Ok(()),
        }
    }

    /// A server did not open the session. With `retry` it may do so later.
    pub(in crate::session) fn refused(&mut self, now: Time, error: CallError, retry: bool) {
        if !matches!(self.link.state(), LinkState::Opening { .. }) {
            return;
        }
        if self.closing.is_some() {
            return self.left();
        }
        if !retry {
            // The server has forgotten this session, so the outcome of a commit stays unknown.
            return self.fail(self.calls.in_doubt().unwrap_or(error));
        }
        self.refused = Some(error);
        self.link.refused(now, &self.config);
    }

    /// The server of this stream does not act, or not any more.
    pub(in crate::session) fn superseded(&mut self, now: Time) {
        if matches!(self.link.state(), LinkState::Down { .. } | LinkState::Connecting { .. }) {
            return; // a word of the last stream
        }
        if self.closing.is_some() {
            return self.left();
        }
        self.leave_server(now, self.link.next_server(&self.config));
    }

    /// This server does not act, or not in the latest term; goes on to `next`.
    fn leave_server(&mut self, now: Time, next: usize) {
        if self.lease.as_mut().is_some_and(Lease::lose) {
            self.link.search_anew();
            if self.config.reconnect == Span(0) {
                return self.lose_server("another server has taken over".into());
            }
            self.suspend(now);
        }
        self.link.leave(now, &self.config, next);
    }

    /// When the other servers are next told of this session's term.
    pub(in crate::session) fn tells_at(&self) -> Option<Time> {
        self.rivals.tell_at().filter(|_| self.link.is_open())
    }

    pub(in crate::session) fn tell_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.tells_at().is_none_or(|at| at > now) {
            return;
        }
        let (Some(lease), Some(Ticket { proof, .. })) = (&self.lease, self.ticket) else { return };
        self.rivals.tell(proof, now + lease.ttl, &mut self.outputs);
    }

    /// A server was told of the term `told` by `Output::Probe`. `acts`: the term in which that
    /// server acts itself, unless it is passive. Not called if the server could not be reached; it
    /// is then told again later.
    pub fn handle_probed(&mut self, now: Time, server: usize, told: Term, acts: Option<TermProof>) {
        self.tick(now);
        if self.ended.is_some() || told != self.term {
            return;
        }
        self.rivals.told(server);
        if let Some(proof) = acts.filter(|proof| proof.term > self.term) {
            // Tell the session's own server of the later term. Without another client to tell it,
            // that server would act for ever.
            self.outputs.push_back(Output::Probe { server: self.link.server(), proof });
            self.leave_server(now, server);
        }
    }
}
