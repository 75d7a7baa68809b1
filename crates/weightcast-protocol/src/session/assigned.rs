//! A read as it was assigned, and whether it continues an earlier read.

use serde::{Deserialize, Serialize};

use crate::{Attempt, Version};

/// Where a transfer's bytes go. A staged update is read beside the memory, whose old version is held and served until the
/// server has the new version verified on all shards; then the new version is copied into place (G4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Staging {
    /// Into the memory, which holds nothing else.
    InPlace,
    /// Beside the memory, which keeps its old version.
    Beside,
    /// From beside the memory into it; the old version is gone.
    Installing,
}

/// A read as it was assigned.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct AssignedRead {
    pub(super) attempt: Attempt,
    /// The assignment at which the memory began anew.
    pub(super) since: Attempt,
    pub(super) version: Version,
    pub(super) staging: Staging,
}

impl AssignedRead {
    /// Whether this assignment, the first of its call, continues the bytes that an earlier call
    /// left. An assignment that begins anew names itself in `since`.
    pub(super) fn goes_on_after(&self, left: &Self) -> bool {
        let later = self.attempt > left.attempt && self.attempt > self.since;
        let same = self.since == left.since && self.version == left.version;
        later && same && self.staging == left.staging
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
            let left = AssignedRead { attempt, since, version: version(1), staging };
            for since in 2..8 {
                for attempt in 2..8 {
                    for number in [1, 2] {
                        for to in [beside, in_place] {
                            let next = AssignedRead {
                                attempt: Attempt(attempt),
                                since: Attempt(since),
                                version: version(number),
                                staging: to,
                            };
                            let same = since == 3 && number == 1 && to == staging;
                            let goes_on = next.goes_on_after(&left);
                            assert_eq!(goes_on, same && attempt > 5, "{since} {attempt} {number}");
                        }
                    }
                }
            }
            // An assignment that begins anew names itself, whatever was left.
            let left = AssignedRead { attempt: Attempt(4), since: Attempt(5), ..left };
            let next = |attempt| AssignedRead { attempt: Attempt(attempt), ..left };
            assert!(!next(5).goes_on_after(&left));
            assert!(next(6).goes_on_after(&left));
        }
    }
}
