//! The stream to the server: opened, and opened again while the lease lives.

use super::lease::Lease;
use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{CallError, Span, Term, Time};

/// How far the stream is.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: LinkState,
    /// Tries since the session was last open.
    tries: u32,
}

#[derive(Clone, Debug)]
enum LinkState {
    /// No stream; try then.
    Down { retry_at: Time },
    /// The runtime is opening one.
    Connecting,
    /// `Open` was sent.
    Opening { sent_at: Time },
    /// The server said to send `Open` again later.
    Refused { retry_at: Time },
    /// Open.
    Open,
}

impl Link {
    pub(super) fn new(now: Time) -> Self {
        Self { state: LinkState::Down { retry_at: now }, tries: 0 }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Open)
    }

    /// Whether the server may have opened the session without our knowing yet.
    pub(super) fn may_be_open(&self) -> bool {
        matches!(self.state, LinkState::Open | LinkState::Opening { .. })
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            LinkState::Down { retry_at } | LinkState::Refused { retry_at } => Some(retry_at),
            LinkState::Connecting | LinkState::Opening { .. } | LinkState::Open => None,
        }
    }
}

impl Session {
    /// The stream asked for by `Connect` is there.
    pub fn handle_connected(&mut self, now: Time) {
        self.tick(now);
        if self.ended.is_none() {
            self.send_open(now);
        }
    }

    /// The stream broke, or could not be opened.
    pub fn handle_disconnected(&mut self, now: Time) {
        self.tick(now);
        self.link.state = LinkState::Down { retry_at: now + self.pause() };
        if self.lease.is_none() && self.closing.is_some() {
            self.left();
        }
    }

    pub(super) fn reconnect_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.link.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        if matches!(self.link.state, LinkState::Refused { .. }) {
            self.send_open(now);
        } else {
            self.link.state = LinkState::Connecting;
            self.outputs.push_back(Output::Connect);
        }
    }

    fn send_open(&mut self, now: Time) {
        let mut open = self.config.open.clone();
        open.term = self.lease.as_ref().map_or(Term(0), |lease| lease.term);
        self.link.state = LinkState::Opening { sent_at: now };
        self.outputs.push_back(Output::Send(ClientMessage::Open(open)));
    }

    pub(super) fn opened(&mut self, now: Time, granted: Lease) {
        let LinkState::Opening { sent_at } = self.link.state else { return };
        if self.lease.as_ref().is_some_and(|lease| lease.term != granted.term) {
            return self.lose_server("it was restarted and knows nothing of this session".into());
        }
        self.link = Link { state: LinkState::Open, tries: 0 };
        self.refused = None;
        self.lease.get_or_insert(granted).renew(sent_at);
        self.heartbeat_if_due(now);
        self.send_again(now);
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
        self.link.state = LinkState::Refused { retry_at: now + self.pause() };
    }

    /// The pause before the next try: doubles with each.
    fn pause(&mut self) -> Span {
        let factor = 1u64 << self.link.tries.min(16);
        self.link.tries += 1;
        Span(self.config.backoff.0.saturating_mul(factor).min(self.config.backoff_max.0))
    }
}
