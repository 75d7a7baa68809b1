//! Which version a call means.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Version;

/// Names a version, absolutely or relative to the versions available now.
///
/// Resolved once, when the first shard of a group starts the transaction (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Selector {
    /// This number, in the newest epoch that has it.
    Exact(u64),
    /// The newest available version.
    Latest,
    /// The paper's `latest-k`: exactly `latest.number - k`. Fails at once if that version is not
    /// available and another one is.
    LatestMinus(u64),
    /// The k-th newest available version; 0 is the newest.
    NthLatest(u64),
    /// The newest available version, if its number is at least this.
    AtLeast(u64),
}

impl Selector {
    /// The selected version among the available ones, given in ascending order.
    pub fn pick(&self, available: &[Version]) -> Option<Version> {
        let latest = available.last().copied()?;
        match *self {
            Self::Exact(number) => available.iter().rev().find(|v| v.number == number).copied(),
            Self::Latest => Some(latest),
            Self::LatestMinus(k) => {
                let number = latest.number.checked_sub(k)?;
                let wanted = Version { epoch: latest.epoch, number };
                available.binary_search(&wanted).ok().map(|index| available[index])
            }
            Self::NthLatest(k) => {
                let back = usize::try_from(k).ok()?;
                available.len().checked_sub(1)?.checked_sub(back).map(|index| available[index])
            }
            Self::AtLeast(number) => (latest.number >= number).then_some(latest),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(number) => write!(f, "{number}"),
            Self::Latest => f.write_str("latest"),
            Self::LatestMinus(k) => write!(f, "latest-{k}"),
            Self::NthLatest(k) => write!(f, "nth_latest({k})"),
            Self::AtLeast(number) => write!(f, "at_least({number})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    /// As the comments say it, by looking at each version.
    fn should_be(selector: Selector, available: &[Version]) -> Option<Version> {
        let newer_than = |version: &Version| available.iter().filter(|v| *v > version).count();
        let latest = available.iter().copied().find(|version| newer_than(version) == 0)?;
        let wanted = |version: &Version| match selector {
            Selector::Exact(number) => version.number == number,
            Selector::Latest => *version == latest,
            Selector::LatestMinus(k) => {
                version.epoch == latest.epoch
                    && version.number.checked_add(k) == Some(latest.number)
            }
            Selector::NthLatest(k) => newer_than(version) as u64 == k,
            Selector::AtLeast(number) => *version == latest && latest.number >= number,
        };
        available.iter().copied().filter(wanted).max()
    }

    #[test]
    fn each_selector_means_what_is_said_of_it_among_any_versions() {
        // All sets of four numbers in each of two runs.
        for set in 0..256u64 {
            let of = |n: u64| Version { epoch: Epoch(n / 4), number: n % 4 };
            let available: Vec<Version> = (0..8).filter(|n| set >> n & 1 == 1).map(of).collect();
            for k in (0..9).chain([u64::MAX - 1, u64::MAX]) {
                for selector in [
                    Selector::Exact(k),
                    Selector::Latest,
                    Selector::LatestMinus(k),
                    Selector::NthLatest(k),
                    Selector::AtLeast(k),
                ] {
                    let picked = selector.pick(&available);
                    assert_eq!(
                        picked,
                        should_be(selector, &available),
                        "{selector}: {available:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn selectors_are_written_as_people_write_them() {
        for (selector, text) in [
            (Selector::Exact(7), "7"),
            (Selector::Latest, "latest"),
            (Selector::LatestMinus(2), "latest-2"),
            (Selector::NthLatest(3), "nth_latest(3)"),
            (Selector::AtLeast(9), "at_least(9)"),
        ] {
            assert_eq!(selector.to_string(), text);
        }
    }
}
