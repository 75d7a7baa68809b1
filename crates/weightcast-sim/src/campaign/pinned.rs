//! Pinned courses: worlds whose fingerprint is written down. In these worlds server and sessions
//! must say the same as before, message for message. A changed fingerprint means that behaviour has
//! changed, not that it is wrong. Pinned courses guard refactorings that are meant to change
//! nothing: an invariant may still hold when an answer has changed.

use crate::base::workers::{cores, for_each};
use crate::run;
use crate::settings::harshness::Harshness;

/// A world and its fingerprint when it was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// The world's seed.
    pub seed: u64,
    /// Whether the world is harsh (`weightcast replay SEED --harsh`).
    pub harsh: bool,
    /// The world's [`Report::fingerprint`](crate::Report::fingerprint).
    pub fingerprint: u64,
}

impl Pinned {
    const USUAL: std::ops::Range<u64> = 0..150;
    const HARSH: std::ops::Range<u64> = 10_000..10_050;

    /// The pinned worlds that are written down, one a line.
    pub fn recorded() -> Vec<Self> {
        let lines = include_str!("../../pinned.txt").lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| Self::read(line).unwrap_or_else(|| panic!("no pinned world: {line}")))
            .collect()
    }

    /// All pinned worlds with the fingerprints that they have now.
    pub fn now() -> Vec<Self> {
        let usual = Self::played(Self::USUAL, false);
        usual.into_iter().chain(Self::played(Self::HARSH, true)).collect()
    }

    /// The same world with the fingerprint that it has now.
    pub fn again(&self) -> Self {
        let options = Harshness { drawn: self.harsh, ..Harshness::default() }.options(self.seed);
        Self { fingerprint: run(self.seed, &options).fingerprint, ..*self }
    }

    fn played(seeds: std::ops::Range<u64>, harsh: bool) -> Vec<Self> {
        let parts = for_each(seeds, cores(), |found: &mut Vec<Self>, seed| {
            found.push(Self { seed, harsh, fingerprint: 0 }.again());
            true
        });
        let mut all = parts.concat();
        all.sort_by_key(|world| world.seed);
        all
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (kind, seed, print) = (words.next()?, words.next()?, words.next()?);
        let fingerprint = u64::from_str_radix(print, 16).ok()?;
        Some(Self { seed: seed.parse().ok()?, harsh: kind == "harsh", fingerprint })
    }
}

impl std::fmt::Display for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.harsh { "harsh" } else { "usual" };
        write!(f, "{kind} {} {:016x}", self.seed, self.fingerprint)
    }
}
