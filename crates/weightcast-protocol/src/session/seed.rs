//! Seeding: the server asks the group to bring a version to its datacentre in the background. The
//! runtime opens a seed replica with memory and a session of its own. This session only passes the
//! request on, and reports a failure.

use serde::{Deserialize, Serialize};

use super::host::{Output, Outputs};
use crate::message::ClientMessage;
use crate::{Span, Version};

/// The seed that the server asked for last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seed {
    ask: Option<u64>,
    failed: bool,
}

impl Seed {
    /// The server asks for a seed. It asks again after a reconnect; a failure is then reported
    /// again.
    pub(super) fn asked(
        &mut self,
        version: Version,
        ask: u64,
        deadline: Span,
        outputs: &mut Outputs,
    ) -> Option<ClientMessage> {
        if self.ask == Some(ask) {
            return self.failure();
        }
        *self = Self { ask: Some(ask), failed: false };
        outputs.push_back(Output::Seed { version, ask, deadline });
        None
    }

    /// The seed has failed. Void if the server has asked for another seed since.
    pub(super) fn failed(&mut self, ask: u64) -> Option<ClientMessage> {
        if self.ask != Some(ask) {
            return None;
        }
        self.failed = true;
        self.failure()
    }

    /// The report for the server, if the seed failed.
    pub(super) fn failure(&self) -> Option<ClientMessage> {
        let ask = self.ask.filter(|_| self.failed)?;
        Some(ClientMessage::SeedFailed { ask })
    }
}
