//! Which version a call means.

use std::fmt;

use crate::Version;

/// Names a version, absolutely or relative to the versions available now.
///
/// Resolved once, when the first shard of a group starts the transaction (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// This number, in the newest epoch that has it.
    Exact(u64),
    /// The newest available version.
    Latest,
    /// The paper's `latest-k`: exactly `latest.number - k`. Unavailable at once if it is gone.
    LatestMinus(u64),
    /// The k-th newest available version; 0 is the newest.
    NthLatest(u64),
    /// The newest available version, if its number is at least this.
    AtLeast(u64),
}

impl Selector {
    /// The selected one of the available versions, given in ascending order.
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
