//! Between two servers: the session has lost its server, and keeps its content until it finds
//! another.
//!
//! A suspended session does not act on the old server's messages, and serves nothing that it
//! offered there. Its content stays. A server of a newer term that knows all shards of the group
//! ends the suspension. The pending call is then made again under its number.

use std::collections::BTreeSet;

use crate::message::{Announcement, ClientMessage};
use crate::session::Session;
use crate::session::host::Output;
use crate::{Safeguard, Time};

impl Session {
    /// Suspends the session: withdraws what it offered, and drops what the server assigned.
    pub(super) fn suspend(&mut self, now: Time) {
        self.work().withdraw();
        if !self.calls.any_answered() {
            // The group has done nothing yet, so it need not be brought over.
            self.lease = None;
        } else if self.suspended.is_none() {
            self.suspended = Some(now + self.config.reconnect);
        }
    }

    pub(in crate::session) fn check_suspension(&mut self, now: Time) {
        if self.ended.is_none() && self.suspended.is_some_and(|until| until <= now) {
            let seconds = self.config.reconnect.0 / 1_000_000_000;
            self.lose_server(format!("no server took the group over within {seconds} s"));
        }
    }

    /// Announces to a server of a newer term what this shard holds.
    pub(super) fn announce(&mut self) {
        let held = self.memory.holding();
        // Serve before the announcement: the server may send readers here as soon as the group is
        // whole.
        if held.is_some_and(|held| !held.refused) {
            self.memory.expose(&mut self.outputs);
        }
        let brings = self.config.safeguards.on(Safeguard::KeptBroughtOver);
        let announcement = Announcement {
            answered: self.calls.answered(),
            generation: self.memory.generation(),
            registration: self.calls.registration,
            held,
            retains: if brings { self.calls.retains.clone() } else { BTreeSet::new() },
        };
        self.outputs.push_back(Output::Send(ClientMessage::Announce(announcement)));
    }

    /// The group is whole again. No shard knows an answer to the pending call, so the call is made
    /// again.
    pub(in crate::session) fn recovered(&mut self, now: Time) {
        if self.suspended.take().is_none() {
            return; // a repetition
        }
        if let Some(pending) = &mut self.calls.pending {
            pending.doubt = None;
        }
        self.send_again(now);
    }
}
