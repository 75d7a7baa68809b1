//! The stream to a server, and the choice of the server. A session with a lease opens a lost stream
//! again to the same server. A session without a lease tries each server of the list in turn.

use serde::{Deserialize, Serialize};

use super::config::SessionConfig;
use super::host::Output;
use crate::{Safeguard, Span, Time};

/// The stream, and how the search for a server goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    state: LinkState,
    /// Tries since the session was last open.
    tries: usize,
    /// The server that is tried or open: its place in the list.
    server: usize,
    /// How many servers of the list were found passive, or not at all, since the session was last open.
    asked: usize,
    /// Whether a server was asked to act since the session was last open. That server may act in a
    /// term of its own by now, even if another server opens the session.
    wanted: bool,
}

/// How far the stream is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum LinkState {
    /// There is no stream; the next try is due then.
    Down { retry_at: Time },
    /// The runtime is opening a stream, and has until then.
    Connecting { until: Time },
    /// `Open` was sent, and the server has until then to answer.
    Opening { sent_at: Time, until: Time },
    /// The server said to send `Open` again later.
    Refused { retry_at: Time },
    /// The session is open.
    Open,
}

impl Link {
    pub(super) fn new(now: Time) -> Self {
        let state = LinkState::Down { retry_at: now };
        Self { state, tries: 0, server: 0, asked: 0, wanted: false }
    }

    pub(super) fn state(&self) -> LinkState {
        self.state
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Open)
    }

    /// Whether the runtime is opening a stream.
    pub(super) fn connects(&self) -> bool {
        matches!(self.state, LinkState::Connecting { .. })
    }

    /// Whether the server may have opened the session, even if the session has not heard of it yet.
    pub(super) fn may_be_open(&self) -> bool {
        matches!(self.state, LinkState::Open | LinkState::Opening { .. })
    }

    pub(super) fn server(&self) -> usize {
        self.server
    }

    /// The server after this one in the list.
    pub(super) fn next_server(&self, config: &SessionConfig) -> usize {
        (self.server + 1) % config.servers
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            LinkState::Down { retry_at } | LinkState::Refused { retry_at } => Some(retry_at),
            LinkState::Connecting { until } | LinkState::Opening { until, .. } => Some(until),
            LinkState::Open => None,
        }
    }

    /// Asks for a stream.
    pub(super) fn connect(&mut self, now: Time, config: &SessionConfig) -> Output {
        self.state = LinkState::Connecting { until: now + config.connect_patience };
        Output::Connect { server: self.server }
    }

    /// Sends `Open`. Returns whether it asks the server to act, because no other server of the list
    /// does.
    pub(super) fn open(&mut self, now: Time, config: &SessionConfig) -> bool {
        let activate = config.servers == 1 || self.asked >= config.servers;
        self.wanted |= activate;
        self.state = LinkState::Opening { sent_at: now, until: now + config.patience };
        activate
    }

    /// The session is open. Returns whether a server was asked to act before.
    pub(super) fn opened(&mut self, now: Time) -> bool {
        let wanted = self.wanted;
        *self = Self { state: LinkState::Open, server: self.server, ..Self::new(now) };
        wanted
    }

    /// The server said to send `Open` again later.
    pub(super) fn refused(&mut self, now: Time, config: &SessionConfig) {
        if config.safeguards.on(Safeguard::RefusalIsAnswer) {
            // A server that refuses acts. It may step down without telling clients that are not its
            // sessions, so the whole list is asked again before another server is made to act.
            self.asked = 0;
        }
        self.state = LinkState::Refused { retry_at: now + self.pause(config) };
    }

    /// The stream is lost. A session with a lease stays with its server; otherwise the next server
    /// is tried.
    pub(super) fn lost(&mut self, now: Time, config: &SessionConfig, stays: bool) {
        if stays {
            self.state = LinkState::Down { retry_at: now + self.pause(config) };
        } else {
            self.leave(now, config, self.next_server(config));
        }
    }

    /// This server does not act, or not in the latest term; tries `next`.
    pub(super) fn leave(&mut self, now: Time, config: &SessionConfig, next: usize) {
        self.asked += 1;
        self.server = next;
        self.state = LinkState::Down { retry_at: now + self.pause(config) };
    }

    /// The lease ran out: the session ignores this server from now on.
    pub(super) fn give_up_server(&mut self, now: Time, config: &SessionConfig) {
        self.tries = 0;
        // Count this server and one backup as already asked, so that the next reachable server takes over.
        self.asked = 2;
        if !self.connects() {
            self.server = self.next_server(config);
            self.state = LinkState::Down { retry_at: now };
        }
    }

    /// The session was open until now: begins the search for a server.
    pub(super) fn search_anew(&mut self) {
        self.tries = 0;
        self.asked = 0;
    }

    /// The pause before the next try. It doubles with each round of the list, not with each try: a
    /// long list must not make the pauses long before all its servers were tried.
    fn pause(&mut self, config: &SessionConfig) -> Span {
        let factor = 1u64 << (self.tries / config.servers).min(16);
        self.tries += 1;
        Span(config.backoff.0.saturating_mul(factor).min(config.backoff_max.0))
    }
}
