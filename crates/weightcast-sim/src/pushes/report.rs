//! What came of one world of pushes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use weightcast_protocol::Time;

use crate::pushes::coverage::PushPoint;
use crate::report::InvariantViolation;

/// What came of one world of pushes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushWorldReport {
    /// The world's seed.
    pub seed: u64,
    /// Events played.
    pub events: u64,
    /// Hash of all events, in order.
    pub fingerprint: u64,
    /// Writes that were let in.
    pub writes: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How pushes ended, at each of their targets.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How often each point of the coverage table was reached.
    pub points: BTreeMap<PushPoint, u64>,
    /// Invariants that did not hold, in order of time; at most twenty.
    pub violations: Vec<InvariantViolation>,
    /// What happened, if the story was asked for.
    pub lines: Vec<String>,
}

impl PushWorldReport {
    /// Most violations that are kept.
    const MAX_VIOLATIONS: usize = 20;

    pub(super) fn violated(&mut self, at: Time, invariant: &str, detail: String) {
        if self.violations.len() < Self::MAX_VIOLATIONS {
            let (invariant, step) = (invariant.to_owned(), self.events);
            self.violations.push(InvariantViolation { invariant, step, at, detail });
        }
    }

    /// The world's story, for people and for programs.
    pub fn story(&self) -> PushStory<'_> {
        let violations = self.violations.iter().map(|violation| PushFinding {
            invariant: &violation.invariant,
            step: violation.step,
            detail: &violation.detail,
        });
        PushStory {
            seed: self.seed,
            events: self.events,
            lines: &self.lines,
            violations: violations.collect(),
        }
    }

    pub(super) fn reach(&mut self, point: PushPoint) {
        *self.points.entry(point).or_default() += 1;
    }
}

/// The story of a world of pushes, for people (`Display`) and for programs (`Serialize`).
#[derive(Debug, Serialize)]
pub struct PushStory<'a> {
    seed: u64,
    events: u64,
    lines: &'a [String],
    violations: Vec<PushFinding<'a>>,
}

#[derive(Debug, Serialize)]
struct PushFinding<'a> {
    invariant: &'a str,
    step: u64,
    detail: &'a str,
}

impl fmt::Display for PushStory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        for PushFinding { invariant, step, detail } in &self.violations {
            writeln!(f, "!! {invariant} at {step}: {detail}")?;
        }
        write!(f, "\n{} events, {} violations", self.events, self.violations.len())
    }
}
