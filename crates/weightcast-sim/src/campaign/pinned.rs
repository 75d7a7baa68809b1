//! Worlds whose course is written down: what server and sessions say in them, message for message, is to stay as it
//! is. A fingerprint that changes says that behaviour has changed, not that it is wrong: it is the net below a
//! rebuilding that is meant to change nothing, where an invariant holds before and after and an answer is another one.

use crate::base::workers::{cores, for_each};
use crate::run;
use crate::settings::harshness::Harshness;

/// A world and what came of it when it was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Its seed.
    pub seed: u64,
    /// Whether it is a harsh one (`weightcast replay SEED --harsh`).
    pub harsh: bool,
    /// [`Report::fingerprint`](crate::Report::fingerprint) of it.
    pub fingerprint: u64,
}

impl Pinned {
    const USUAL: std::ops::Range<u64> = 0..150;
    const HARSH: std::ops::Range<u64> = 10_000..10_050;

    /// Those that are written down, a line each.
    pub fn recorded() -> Vec<Self> {
        let lines = include_str!("../../pinned.txt").lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| Self::read(line).unwrap_or_else(|| panic!("no pinned world: {line}")))
            .collect()
    }

    /// All of them as they are now.
    pub fn now() -> Vec<Self> {
        let usual = Self::played(Self::USUAL, false);
        usual.into_iter().chain(Self::played(Self::HARSH, true)).collect()
    }

    /// The same world as it is now.
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
