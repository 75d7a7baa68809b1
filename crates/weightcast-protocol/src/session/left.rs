//! What the memory has of a read that ran out of time: the next call to the same version goes on after it,
//! if the server says so.

use super::staging::Staging;
use super::transfer::Transfer;
use super::{Output, Session};
use crate::{Attempt, Version};

/// An unfinished read that nothing has replaced.
#[derive(Clone, Debug)]
pub(super) struct Left {
    attempt: Attempt,
    since: Attempt,
    version: Version,
    staging: Staging,
}

impl Left {
    pub(super) fn of(transfer: &Transfer) -> Self {
        let (attempt, since, version) = transfer.read();
        Self { attempt, since, version, staging: transfer.staging }
    }

    /// Whether this assignment, the first of its call, goes on after it. One that begins anew names
    /// itself.
    pub(super) fn goes_on(
        &self,
        since: Attempt,
        attempt: Attempt,
        version: Version,
        staging: Staging,
    ) -> bool {
        let later = attempt > self.attempt && attempt > since;
        later && (self.since, self.version, self.staging) == (since, version, staging)
    }
}

impl Session {
    /// A transfer runs out of time: the memory holds nothing and nobody reads it, but what was read
    /// stays as it is, for all that is known.
    pub(super) fn leave(&mut self, transfer: Option<Transfer>) {
        let Some(transfer) = transfer else { return };
        if transfer.staging == Staging::Installing || !self.config.relays {
            return self.abandon(Some(transfer));
        }
        if transfer.runs() {
            self.outputs.push_back(Output::StopRead);
        }
        if transfer.staging == Staging::InPlace {
            self.make_mutable();
        }
        self.left = Some(Left::of(&transfer));
    }

    /// What was left is not gone on with.
    pub(super) fn discard(&mut self, left: Option<Left>) {
        if left.is_some_and(|left| left.staging == Staging::Beside) {
            self.outputs.push_back(Output::Unstage);
        }
    }
}
