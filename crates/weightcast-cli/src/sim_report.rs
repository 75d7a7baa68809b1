//! What `sim` prints. The words of the JSON are fixed: other programs read them.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;
use weightcast_sim::{Catch, MUTANTS, Mutant, Summary};

use crate::harshness::Harsh;

/// A campaign.
#[derive(Serialize)]
pub(crate) struct SimReport {
    version: &'static str,
    seeds: u64,
    /// What was asked for of every world.
    options: Harsh,
    /// Virtual hours of all worlds together.
    cluster_hours: f64,
    events: u64,
    faults: BTreeMap<&'static str, u64>,
    coverage: CoverageReport,
    violations: Vec<ViolationReport>,
    /// Seeds played twice and compared; those that differed.
    repeated: u64,
    unrepeatable: Vec<u64>,
    /// Calls that ended, by call and end.
    calls: BTreeMap<String, u64>,
    wall_seconds: f64,
}

#[derive(Serialize)]
struct CoverageReport {
    hit: usize,
    total: usize,
    missed: Vec<String>,
}

#[derive(Serialize)]
struct ViolationReport {
    seed: u64,
    invariant: String,
    step: u64,
    detail: String,
}

impl SimReport {
    pub(crate) fn of(summary: &Summary, options: &Harsh, wall: Duration) -> Self {
        let coverage = summary.coverage();
        let violations = summary.violations.iter().map(|(seed, violation)| ViolationReport {
            seed: *seed,
            invariant: violation.invariant.clone(),
            step: violation.step,
            detail: violation.detail.clone(),
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            seeds: summary.seeds,
            options: options.clone(),
            cluster_hours: summary.time.0 as f64 / 3.6e12,
            events: summary.events,
            faults: summary.faults.clone(),
            coverage: CoverageReport {
                hit: coverage.hit,
                total: coverage.total,
                missed: coverage.missed,
            },
            violations: violations.collect(),
            repeated: summary.repeated,
            unrepeatable: summary.unrepeatable.clone(),
            calls: summary.calls.clone(),
            wall_seconds: wall.as_secs_f64(),
        }
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("maps with string names always serialise") + "\n"
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let faults: u64 = self.faults.values().sum();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<16}{value}");
        };
        line("worlds", format!("{} in {:.1} s", self.seeds, self.wall_seconds));
        let options = self.options.arguments();
        if !options.is_empty() {
            line("options", options.trim().to_owned());
        }
        line("virtual hours", format!("{:.2}", self.cluster_hours));
        line("events", self.events.to_string());
        line("faults", faults.to_string());
        for (kind, count) in &self.faults {
            line("", format!("{count:>8}  {kind}"));
        }
        line("played twice", format!("{}, {} differed", self.repeated, self.unrepeatable.len()));
        line("coverage", format!("{} of {} points", self.coverage.hit, self.coverage.total));
        for point in &self.coverage.missed {
            line("", format!("  missed  {point}"));
        }
        line("violations", self.violations.len().to_string());
        for violation in self.violations.iter().take(10) {
            let ViolationReport { seed, invariant, step, detail } = violation;
            line("", format!("{invariant} in seed {seed} at step {step}: {detail}"));
        }
        text
    }
}

/// What came of a mutant.
#[derive(Serialize)]
pub(crate) struct CatchReport {
    pub(crate) mutant: &'static str,
    pub(crate) caught: bool,
    seed: Option<u64>,
    invariant: Option<String>,
    step: Option<u64>,
    detail: Option<String>,
    /// Worlds played up to that one.
    worlds: u64,
}

impl CatchReport {
    pub(crate) fn of(mutant: &Mutant, seeds: Range<u64>, catch: Option<Catch>) -> Self {
        let last = catch.as_ref().map_or(seeds.end, |catch| catch.seed + 1);
        Self {
            mutant: mutant.name,
            caught: catch.is_some(),
            seed: catch.as_ref().map(|catch| catch.seed),
            invariant: catch.as_ref().map(|catch| catch.violation.invariant.clone()),
            step: catch.as_ref().map(|catch| catch.violation.step),
            detail: catch.map(|catch| catch.violation.detail),
            worlds: last - seeds.start,
        }
    }

    /// One object, or a list.
    pub(crate) fn json(reports: &[CatchReport], one: bool) -> String {
        let text = match reports {
            [report] if one => serde_json::to_string_pretty(report),
            reports => serde_json::to_string_pretty(reports),
        };
        text.expect("plain fields always serialise") + "\n"
    }
}

impl fmt::Display for CatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutant, worlds, .. } = self;
        match (&self.invariant, self.seed, self.step, &self.detail) {
            (Some(invariant), Some(seed), Some(step), Some(detail)) => write!(
                f,
                "caught      {mutant:<40} {invariant:<4} seed {seed}, step {step}, worlds \
                 {worlds}: {detail}"
            ),
            _ => write!(f, "NOT CAUGHT  {mutant:<40} worlds {worlds}"),
        }
    }
}

/// The mutants, for people.
pub(crate) fn mutants_table() -> String {
    let lines = MUTANTS.iter().map(|mutant| {
        let found_by = mutant.found_by.join(" or ");
        format!("{:<40} {found_by:<10} {}\n", mutant.name, mutant.what)
    });
    lines.collect()
}

/// The mutants, for programs.
pub(crate) fn mutants_json() -> String {
    #[derive(Serialize)]
    struct Entry {
        name: &'static str,
        what: &'static str,
        found_by: &'static [&'static str],
    }
    let entry = |m: &Mutant| Entry { name: m.name, what: m.what, found_by: m.found_by };
    let entries: Vec<Entry> = MUTANTS.iter().map(entry).collect();
    serde_json::to_string_pretty(&entries).expect("plain fields always serialise") + "\n"
}
