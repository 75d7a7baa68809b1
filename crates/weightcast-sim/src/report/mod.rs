//! The report on one world.

pub(crate) mod fingerprint;
mod narrators;
pub(crate) mod retelling;
pub(crate) mod story;

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::Time;
use weightcast_protocol::server::Counters;

use crate::sights::coverage::Point;

/// The report on one world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The world's seed.
    pub seed: u64,
    /// Events played.
    pub events: u64,
    /// Hash of everything that happened, in order: equal for equal runs.
    pub fingerprint: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Calls that ended, by call and result.
    pub calls: BTreeMap<String, u64>,
    /// Points of the coverage table that were reached.
    pub points: BTreeSet<Point>,
    /// What the server counted.
    pub counters: Counters,
    /// Invariants that did not hold, in order of time; at most a hundred.
    pub violations: Vec<InvariantViolation>,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantViolation {
    /// The invariant's name, as in `docs/invariants.md`; `panic` if the protocol's code panicked,
    /// `hang` if the world would have gone on for ever.
    pub invariant: String,
    /// Number of the event that showed the violation.
    pub step: u64,
    /// When, on the world's clock.
    pub at: Time,
    /// What was seen.
    pub detail: String,
}

impl Report {
    /// Most violations that are kept: the first says the most, a flood says no more.
    const MAX_VIOLATIONS: usize = 100;

    pub(crate) fn violated(&mut self, at: Time, invariant: &str, detail: String) {
        if self.violations.len() < Self::MAX_VIOLATIONS {
            let (invariant, step) = (invariant.to_owned(), self.events);
            self.violations.push(InvariantViolation { invariant, step, at, detail });
        }
    }

    /// Whether an invariant was violated.
    pub fn has(&self, invariant: &str) -> bool {
        self.violations.iter().any(|violation| violation.invariant == invariant)
    }
}
