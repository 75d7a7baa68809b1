//! What a `wait` waits for. The server checks the condition at one revision for all shards of a
//! group, so that shards which see different listings never decide differently (G1, G3).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Revision, Selector, Version};

/// Ends a `wait` as soon as it holds. The answer is the listing at which it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// The listing has moved past a revision: a watch that loses no change.
    Changed {
        /// The last revision seen.
        after: Revision,
    },
    /// A version is available. Fails at once if it can never be, as `replicate` does.
    Available(Selector),
    /// Rollouts hold versions that are new enough: none lags, none is over-stale.
    Held(Freshness),
}

/// Rollouts that hold a version which is new enough.
///
/// Rollouts count from `register` to `unregister` or their end. A rollout that is being filled in
/// place holds nothing. Versions are those of the run of the newest available version; without an
/// available version, nothing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Freshness {
    /// The oldest version that will do.
    pub oldest: Oldest,
    /// How many rollouts it takes.
    pub by: Quorum,
}

/// The oldest version that is new enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Oldest {
    /// This number.
    Number(u64),
    /// At most this many numbers before the newest available version.
    Behind(u64),
}

/// How many rollouts have to hold such a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Quorum {
    /// Every rollout, and at least one.
    All,
    /// At least this many.
    AtLeast(u32),
}

impl Freshness {
    /// The oldest version that is new enough, if `latest` is the newest available one.
    pub fn oldest(&self, latest: Version) -> Version {
        let number = match self.oldest {
            Oldest::Number(number) => number,
            Oldest::Behind(behind) => latest.number.saturating_sub(behind),
        };
        Version { epoch: latest.epoch, number }
    }

    /// Whether the condition holds, given the version that each rollout holds.
    pub fn is_met(
        &self,
        latest: Option<Version>,
        rollouts: impl IntoIterator<Item = Option<Version>>,
    ) -> bool {
        let Some(oldest) = latest.map(|latest| self.oldest(latest)) else { return false };
        let (mut all, mut new) = (0, 0);
        for held in rollouts {
            all += 1;
            new += u32::from(held.is_some_and(|version| version >= oldest));
        }
        match self.by {
            Quorum::All => all > 0 && new == all,
            Quorum::AtLeast(count) => new >= count,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { after } => write!(f, "after revision {after}"),
            Self::Available(selector) => write!(f, "{selector} available"),
            Self::Held(held) => held.fmt(f),
        }
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            Quorum::All => f.write_str("all rollouts")?,
            Quorum::AtLeast(count) => write!(f, "{count} rollouts")?,
        }
        match self.oldest {
            Oldest::Number(number) => write!(f, " hold at least {number}"),
            Oldest::Behind(behind) => write!(f, " hold at least latest-{behind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    fn version(epoch: u64, number: u64) -> Version {
        Version { epoch: Epoch(epoch), number }
    }

    fn met(oldest: Oldest, by: Quorum, rollouts: &[Option<Version>]) -> bool {
        Freshness { oldest, by }.is_met(Some(version(2, 10)), rollouts.iter().copied())
    }

    #[test]
    fn all_are_waited_for_even_those_that_hold_nothing() {
        let rollouts = [Some(version(2, 8)), Some(version(2, 10))];
        assert!(met(Oldest::Number(8), Quorum::All, &rollouts));
        assert!(!met(Oldest::Number(9), Quorum::All, &rollouts));
        assert!(met(Oldest::Behind(2), Quorum::All, &rollouts));
        assert!(!met(Oldest::Behind(1), Quorum::All, &rollouts));
        assert!(!met(Oldest::Number(8), Quorum::All, &[rollouts[0], None]));
        assert!(!met(Oldest::Number(0), Quorum::All, &[]), "there is none that could hold it");
    }

    #[test]
    fn some_may_lag() {
        let rollouts = [Some(version(2, 8)), None, Some(version(2, 10))];
        assert!(met(Oldest::Number(8), Quorum::AtLeast(2), &rollouts));
        assert!(!met(Oldest::Number(9), Quorum::AtLeast(2), &rollouts));
        assert!(met(Oldest::Behind(99), Quorum::AtLeast(2), &rollouts));
        assert!(!met(Oldest::Behind(99), Quorum::AtLeast(3), &rollouts));
    }

    #[test]
    fn versions_of_an_older_run_are_too_old_whatever_their_number() {
        assert!(!met(Oldest::Number(1), Quorum::All, &[Some(version(1, 99))]));
        assert!(!met(Oldest::Behind(99), Quorum::AtLeast(1), &[Some(version(1, 99))]));
    }

    #[test]
    fn nothing_is_held_while_nothing_is_available() {
        let held = Freshness { oldest: Oldest::Behind(3), by: Quorum::AtLeast(0) };
        assert!(!held.is_met(None, []));
        assert!(held.is_met(Some(version(1, 0)), []));
    }

    /// Says it as the comments do, one rollout after the other.
    fn should_be_met(held: Freshness, latest: Version, rollouts: &[Option<Version>]) -> bool {
        let will_do = |rollout: &Option<Version>| {
            rollout.is_some_and(|version| {
                let far_enough = match held.oldest {
                    Oldest::Number(number) => version.number >= number,
                    Oldest::Behind(behind) => version.number + behind >= latest.number,
                };
                version.epoch > latest.epoch || (version.epoch == latest.epoch && far_enough)
            })
        };
        let lagging = rollouts.iter().filter(|rollout| !will_do(rollout)).count();
        match held.by {
            Quorum::All => !rollouts.is_empty() && lagging == 0,
            Quorum::AtLeast(count) => rollouts.len() - lagging >= count as usize,
        }
    }

    #[test]
    fn every_small_case_is_as_it_should_be() {
        let latest = version(2, 3);
        let mut held: Vec<Option<Version>> = vec![None];
        held.extend(
            (1..4).flat_map(|epoch| (0..5).map(move |number| Some(version(epoch, number)))),
        );
        let oldest = (0..5).flat_map(|n| [Oldest::Number(n), Oldest::Behind(n)]);
        let by = [Quorum::All].into_iter().chain((0..4).map(Quorum::AtLeast));
        for condition in oldest.flat_map(|o| by.clone().map(move |by| Freshness { oldest: o, by }))
        {
            for (one, other) in held.iter().flat_map(|one| held.iter().map(move |o| (*one, *o))) {
                for rollouts in [&[][..], &[one], &[one, other], &[other, None, one]] {
                    assert_eq!(
                        condition.is_met(Some(latest), rollouts.iter().copied()),
                        should_be_met(condition, latest, rollouts),
                        "{condition}: {rollouts:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_oldest_that_will_do_is_of_the_newest_run() {
        for (oldest, number) in [
            (Oldest::Number(0), 0),
            (Oldest::Number(99), 99),
            (Oldest::Behind(0), 10),
            (Oldest::Behind(9), 1),
            (Oldest::Behind(10), 0),
            (Oldest::Behind(11), 0),
        ] {
            let held = Freshness { oldest, by: Quorum::All };
            assert_eq!(held.oldest(version(2, 10)), version(2, number), "{oldest:?}");
        }
    }

    #[test]
    fn conditions_are_written_as_people_say_them() {
        let after = Revision { term: crate::Term(3), number: 4 };
        let held = |by, oldest| Condition::Held(Freshness { oldest, by });
        for (condition, text) in [
            (Condition::Changed { after }, "after revision 3.4"),
            (Condition::Available(Selector::LatestMinus(2)), "latest-2 available"),
            (held(Quorum::All, Oldest::Number(7)), "all rollouts hold at least 7"),
            (held(Quorum::AtLeast(5), Oldest::Behind(1)), "5 rollouts hold at least latest-1"),
        ] {
            assert_eq!(condition.to_string(), text);
        }
    }
}
