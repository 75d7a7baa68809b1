//! Between two servers: the session has lost one, and keeps what it holds until it finds another.
//!
//! A suspended session acts on nothing that the old server told it, and serves nothing that it offered there. Its content
//! stays as it is. A server of a newer term that knows all shards of the group ends the suspension; the call that was
//! pending is then made again under its number.

use crate::Time;
use crate::message::{Announcement, ClientMessage};
use crate::session::Session;
use crate::session::host::Output;

impl Session {
    /// The server's word counts no more: what was offered to it is withdrawn, what it assigned is dropped.
    pub(super) fn suspend(&mut self, now: Time) {
        self.work().withdraw();
        if !self.calls.any_answered() {
            // The group has done nothing yet: nothing is lost with it.
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

    /// Tells a server of a newer term what this shard brings.
    pub(super) fn announce(&mut self) {
        let held = self.memory.holding();
        if held.is_some_and(|held| !held.refused) {
            self.memory.expose(&mut self.outputs);
        }
        let announcement = Announcement {
            answered: self.calls.answered(),
            generation: self.memory.generation(),
            registration: self.calls.registration,
            held,
        };
        self.outputs.push_back(Output::Send(ClientMessage::Announce(announcement)));
    }

    /// The group is whole again. No shard knows of an answer to the pending call.
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
