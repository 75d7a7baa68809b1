//! The stream to a server: opened, and opened again; to the same one while the lease lives, else to
//! each of the list in turn.

use super::lease::Lease;
use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{CallError, OpSeq, Safeguard, Span, Ticket, Time};

/// How far the stream is.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: LinkState,
    /// Tries since the session was last open.
    tries: usize,
    /// The server that is tried, by its place in the list.
    server: usize,
    /// Servers found passive or not at all since the session was last open.
    asked: usize,
    /// A server was asked to act since the session was last open; it may, whoever opens it then.
    wanted: bool,
}

#[derive(Clone, Debug)]
enum LinkState {
    /// No stream; try then.
    Down { retry_at: Time },
    /// The runtime is opening one; none by then is as good as none.
    Connecting { until: Time },
    /// `Open` was sent; no answer by then is as good as none.
    Opening { sent_at: Time, until: Time },
    /// The server said to send `Open` again later.
    Refused { retry_at: Time },
    /// Open.
    Open,
}

impl Link {
    pub(super) fn new(now: Time) -> Self {
        let state = LinkState::Down { retry_at: now };
        Self { state, tries: 0, server: 0, asked: 0, wanted: false }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Open)
    }

    /// Whether the runtime is opening a stream.
    fn connects(&self) -> bool {
        matches!(self.state, LinkState::Connecting { .. })
    }

    pub(super) fn server(&self) -> usize {
        self.server
    }

    /// Whether the server may have opened the session without our knowing yet.
    pub(super) fn may_be_open(&self) -> bool {
        matches!(self.state, LinkState::Open | LinkState::Opening { .. })
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            LinkState::Down { retry_at } | LinkState::Refused { retry_at } => Some(retry_at),
            LinkState::Connecting { until } | LinkState::Opening { until, .. } => Some(until),
            LinkState::Open => None,
        }
    }
}

impl Session {
    /// The stream asked for by the last `Connect` is there. Void if it was given up meanwhile.
    pub fn handle_connected(&mut self, now: Time) {
        // The tick may ask for another one, which this is not.
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
        if matches!(self.link.state, LinkState::Down { .. }) {
            return; // it was given up before
        }
        if self.link.connects() && !connects {
            return; // it was given up just now: the next one is asked for, and has not failed
        }
        self.lose_stream(now);
        if self.lease.is_none() && self.closing.is_some() {
            self.left();
        }
    }

    /// Within its lease the session stays with its server, else the next one has its turn.
    fn lose_stream(&mut self, now: Time) {
        if self.lease.as_ref().is_none_or(|lease| lease.lost) {
            self.link.server = (self.link.server + 1) % self.config.servers;
            self.link.asked += 1;
        }
        self.link.state = LinkState::Down { retry_at: now + self.pause() };
    }

    /// The lease ran out: nothing that this server does concerns the session any more.
    pub(super) fn give_up_server(&mut self, now: Time) {
        self.link.tries = 0;
        // It is as good as asked, and so is one other: the first that is found may take over.
        self.link.asked = 2;
        if !self.link.connects() {
            self.link.server = (self.link.server + 1) % self.config.servers;
            self.link.state = LinkState::Down { retry_at: now };
        }
    }

    /// This server is not active, or not in the latest term; `next` may be.
    pub(super) fn leave_server(&mut self, now: Time, next: usize) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.lost) {
            lease.lost = true;
            self.link.tries = 0;
            self.link.asked = 0;
            if self.config.reconnect == Span(0) {
                return self.lose_server("another server has taken over".into());
            }
            self.suspend(now);
        }
        self.link.asked += 1;
        self.link.server = next;
        self.link.state = LinkState::Down { retry_at: now + self.pause() };
    }

    pub(super) fn superseded(&mut self, now: Time) {
        if matches!(self.link.state, LinkState::Down { .. } | LinkState::Connecting { .. }) {
            return; // a word of the last one
        }
        if self.closing.is_some() {
            return self.left();
        }
        self.leave_server(now, (self.link.server + 1) % self.config.servers);
    }

    pub(super) fn reconnect_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.link.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        match self.link.state {
            LinkState::Refused { .. } => self.send_open(now),
            LinkState::Connecting { .. } | LinkState::Opening { .. } => self.lose_stream(now),
            _ => {
                let until = now + self.config.connect_patience;
                self.link.state = LinkState::Connecting { until };
                self.outputs.push_back(Output::Connect { server: self.link.server });
            }
        }
    }

    fn send_open(&mut self, now: Time) {
        let mut open = self.config.open.clone();
        open.ticket = self.ticket;
        open.rejoins = self.lease.is_some() && self.answered > OpSeq(0);
        open.activate = self.config.servers == 1 || self.link.asked >= self.config.servers;
        self.link.wanted |= open.activate;
        self.link.state = LinkState::Opening { sent_at: now, until: now + self.config.patience };
        self.outputs.push_back(Output::Send(ClientMessage::Open(open)));
    }

    pub(super) fn opened(&mut self, now: Time, ticket: Ticket, lease: Span) {
        let granted = Lease::new(&ticket, lease);
        let LinkState::Opening { sent_at, .. } = self.link.state else { return };
        if granted.term < self.term && self.config.safeguards.on(Safeguard::TermOrder) {
            return self.lose_stream(now); // no way back (T3)
        }
        let goes_over = self.lease.as_ref().is_some_and(|lease| lease.term != granted.term);
        if goes_over && self.config.reconnect == Span(0) {
            return self.lose_server("it was restarted and knows nothing of this session".into());
        }
        if goes_over && self.lease.as_ref().is_some_and(|lease| !lease.lost) {
            self.suspend(now);
        }
        let other = |lease: &Lease| lease.incarnation != granted.incarnation;
        if self.lease.as_ref().is_some_and(other) {
            let replica = self.config.open.replica.clone();
            let reason = "the reference server took this shard for another".to_owned();
            return self.fail(CallError::GroupBroken { replica, reason });
        }
        let new_term = self.term != granted.term;
        self.term = granted.term;
        self.ticket = Some(ticket);
        let other_may_act = new_term || self.link.wanted;
        self.link = Link { state: LinkState::Open, server: self.link.server, ..Link::new(now) };
        self.refused = None;
        self.take_lease(granted, sent_at);
        if other_may_act {
            self.look_for_rivals(now);
        }
        self.heartbeat_if_due(now);
        if self.suspended.is_some() {
            self.announce();
        } else {
            self.send_again(now);
        }
    }

    pub(super) fn refused(&mut self, now: Time, error: CallError, retry: bool) {
        if !matches!(self.link.state, LinkState::Opening { .. }) {
            return;
        }
        if self.closing.is_some() {
            return self.left();
        }
        if !retry {
            return match self.in_doubt() {
                // What came of the commit went with the server's memory of this session.
                Some(doubt) => self.fail(doubt),
                None => self.fail(error),
            };
        }
        self.refused = Some(error);
        if self.config.safeguards.on(Safeguard::RefusalIsAnswer) {
            // This server acts. It may step down without telling who is none of its sessions; then
            // the whole list is asked again before another is made to act.
            self.link.asked = 0;
        }
        self.link.state = LinkState::Refused { retry_at: now + self.pause() };
    }

    /// The pause before the next try: doubles with each round of the list. So who has several servers
    /// to ask is not longer on the way to the last of them than so many of the shortest pauses.
    fn pause(&mut self) -> Span {
        let factor = 1u64 << (self.link.tries / self.config.servers).min(16);
        self.link.tries += 1;
        Span(self.config.backoff.0.saturating_mul(factor).min(self.config.backoff_max.0))
    }
}
