//! Grants that come before the shard holds their version: one rank of a trainer pushes as soon as its `publish` has
//! returned, and others have not heard the server's answer yet.

use weightcast_protocol::Version;

use super::word::GrantWord;

/// So many are kept; a driver repeats those that are not.
const MOST: usize = 256;

/// Grants that wait for their version.
#[derive(Default)]
pub(super) struct EarlyGrants {
    /// The newest version that the shard has held.
    pub(super) newest: Option<Version>,
    grants: Vec<GrantWord>,
}

impl EarlyGrants {
    /// Keeps a grant if the shard, which holds this version, may come to hold the grant's. False if it will not.
    pub(super) fn keep(&mut self, holds: Option<Version>, word: &GrantWord) -> bool {
        let version = Some(word.grant.version);
        if holds >= version || self.newest >= version {
            return false;
        }
        let place = (word.grant.target, word.grant.number);
        self.grants.retain(|kept| (kept.grant.target, kept.grant.number) != place);
        if self.grants.len() < MOST {
            self.grants.push(word.clone());
        }
        true
    }

    /// The shard holds this version from now on: the grants that waited for it. Those of older ones are dropped.
    pub(super) fn due(&mut self, version: Version) -> Vec<GrantWord> {
        self.newest = self.newest.max(Some(version));
        let (due, later) = std::mem::take(&mut self.grants)
            .into_iter()
            .filter(|word| word.grant.version >= version)
            .partition(|word| word.grant.version == version);
        self.grants = later;
        due
    }
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::push::TargetId;

    use super::*;
    use crate::client::push::samples;

    fn version(number: u64) -> Version {
        Version { number, ..samples::VERSION }
    }

    fn word(grant: u64, number: u64) -> GrantWord {
        let mut word = samples::granted([0]);
        (word.grant.number, word.grant.version) = (grant, version(number));
        word
    }

    fn numbers(words: &[GrantWord]) -> Vec<u64> {
        words.iter().map(|word| word.grant.number).collect()
    }

    #[test]
    fn what_the_shard_may_come_to_hold_is_kept() {
        for (holds, held_before, of, kept) in [
            (None, None, 1, true),
            (Some(1), Some(1), 2, true),
            (None, Some(1), 2, true),
            (Some(2), Some(2), 2, false),
            (None, Some(2), 2, false),
            (Some(1), Some(3), 2, false),
            (Some(3), None, 2, false),
        ] {
            let mut early = EarlyGrants::default();
            held_before.into_iter().for_each(|before| drop(early.due(version(before))));
            let case = format!("{holds:?}, {held_before:?}, {of}");
            assert_eq!(early.keep(holds.map(version), &word(1, of)), kept, "{case}");
            assert_eq!(early.grants.len(), usize::from(kept), "{case}");
        }
    }

    #[test]
    fn each_is_used_once_and_with_its_version() {
        let mut early = EarlyGrants::default();
        for (grant, of) in [(1, 2), (2, 3), (3, 2), (1, 2), (4, 1)] {
            assert!(early.keep(None, &word(grant, of)));
        }
        let mut other = word(1, 2);
        other.grant.target = TargetId(other.grant.target.0 + 1);
        assert!(early.keep(None, &other));
        assert_eq!(numbers(&early.due(version(2))), [3, 1, 1]);
        assert_eq!(numbers(&early.due(version(2))), [0; 0]);
        assert_eq!(numbers(&early.due(version(3))), [2]);
        assert!(early.grants.is_empty());
    }

    #[test]
    fn no_more_than_so_many_are_kept() {
        let mut early = EarlyGrants::default();
        for grant in 0..2 * MOST as u64 {
            assert!(early.keep(None, &word(grant, 1)), "its driver asks again");
        }
        assert_eq!(early.due(version(1)).len(), MOST);
    }
}
