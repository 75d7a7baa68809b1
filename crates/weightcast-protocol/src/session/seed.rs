//! Offload seeding: the group is asked to bring a version to its datacentre in the background. The
//! runtime opens a seed replica, which has memory and a session of its own; this one only passes the
//! wish on, and reports a failure.

use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{Span, Time, Version};

/// A seed that the server asked for.
#[derive(Clone, Debug)]
pub(super) struct Seed {
    ask: u64,
    failed: bool,
}

impl Session {
    /// The server wants a version to cross. It may ask again after a reconnect.
    pub(super) fn asked_to_seed(&mut self, version: Version, ask: u64, deadline: Span) {
        if self.seed.as_ref().is_some_and(|seed| seed.ask == ask) {
            return self.send_seed_failed();
        }
        self.seed = Some(Seed { ask, failed: false });
        self.outputs.push_back(Output::Seed { version, ask, deadline });
    }

    /// There is no memory for the seed, or it has failed. Void if another one was asked for since.
    pub fn handle_seed_failed(&mut self, now: Time, ask: u64) {
        self.tick(now);
        if let Some(seed) = self.seed.as_mut().filter(|seed| seed.ask == ask) {
            seed.failed = true;
            self.send_seed_failed();
        }
    }

    pub(super) fn send_seed_failed(&mut self) {
        if let Some(Seed { ask, failed: true }) = self.seed {
            self.send(ClientMessage::SeedFailed { ask });
        }
    }
}
