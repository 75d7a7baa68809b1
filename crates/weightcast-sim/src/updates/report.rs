//! What came of one world of updates.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use weightcast_protocol::Time;

use crate::report::InvariantViolation;
use crate::updates::coverage::UpdatePoint;

/// What came of one world of updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateReport {
    /// The world's seed.
    pub seed: u64,
    /// Events played.
    pub events: u64,
    /// Hash of all events, in order.
    pub fingerprint: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Updates of engines that ended, by the engine's state and the reason.
    pub outcomes: BTreeMap<String, u64>,
    /// How often each point of the coverage table was reached.
    pub points: BTreeMap<UpdatePoint, u64>,
    /// Invariants that did not hold, in order of time; at most twenty.
    pub violations: Vec<InvariantViolation>,
    /// What happened, if the story was asked for.
    pub lines: Vec<String>,
}

impl UpdateReport {
    /// Most violations that are kept.
    const MAX_VIOLATIONS: usize = 20;

    pub(super) fn violated(&mut self, at: Time, invariant: &str, detail: String) {
        if self.violations.len() < Self::MAX_VIOLATIONS {
            let (invariant, step) = (invariant.to_owned(), self.events);
            self.violations.push(InvariantViolation { invariant, step, at, detail });
        }
    }

    /// The world's story, for people and for programs.
    pub fn story(&self) -> UpdateStory<'_> {
        let violations = self.violations.iter().map(|violation| UpdateFinding {
            invariant: &violation.invariant,
            step: violation.step,
            detail: &violation.detail,
        });
        UpdateStory {
            seed: self.seed,
            events: self.events,
            lines: &self.lines,
            violations: violations.collect(),
        }
    }

    pub(super) fn reach(&mut self, point: UpdatePoint) {
        *self.points.entry(point).or_default() += 1;
    }
}

/// The story of a world of updates, for people (`Display`) and for programs (`Serialize`).
#[derive(Debug, Serialize)]
pub struct UpdateStory<'a> {
    seed: u64,
    events: u64,
    lines: &'a [String],
    violations: Vec<UpdateFinding<'a>>,
}

#[derive(Debug, Serialize)]
struct UpdateFinding<'a> {
    invariant: &'a str,
    step: u64,
    detail: &'a str,
}

impl fmt::Display for UpdateStory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        for UpdateFinding { invariant, step, detail } in &self.violations {
            writeln!(f, "!! {invariant} at {step}: {detail}")?;
        }
        write!(f, "\n{} events, {} violations", self.events, self.violations.len())
    }
}
