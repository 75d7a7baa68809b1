//! What the memory has of a read that ran out of time: the next call to the same version goes on after it,
//! if the server says so.

use super::staging::Staging;
use super::transfer::ShardTransfer;
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
    pub(super) fn of(transfer: &ShardTransfer) -> Self {
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
    pub(super) fn leave(&mut self, transfer: Option<ShardTransfer>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    /// What was left began with assignment 3 and ended with 5.
    #[test]
    fn only_a_later_assignment_of_the_same_read_goes_on_after_it() {
        let version = |number| Version { epoch: Epoch(1), number };
        let (beside, in_place) = (Staging::Beside, Staging::InPlace);
        for staging in [beside, in_place] {
            let (since, attempt) = (Attempt(3), Attempt(5));
            let left = Left { attempt, since, version: version(1), staging };
            for since in 2..8 {
                for attempt in 2..8 {
                    for number in [1, 2] {
                        for to in [beside, in_place] {
                            let goes_on =
                                left.goes_on(Attempt(since), Attempt(attempt), version(number), to);
                            let same = since == 3 && number == 1 && to == staging;
                            assert_eq!(goes_on, same && attempt > 5, "{since} {attempt} {number}");
                        }
                    }
                }
            }
            // One that begins anew names itself, whatever was left.
            let left = Left { attempt: Attempt(4), since: Attempt(5), ..left };
            assert!(!left.goes_on(Attempt(5), Attempt(5), version(1), staging));
            assert!(left.goes_on(Attempt(5), Attempt(6), version(1), staging));
        }
    }
}
