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
    /// What happened in each world as one number in hexadecimal, by seed: see docs/verification.md.
    fingerprints: BTreeMap<u64, String>,
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
            fingerprints: hexadecimal(&summary.fingerprints),
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

fn hexadecimal(fingerprints: &BTreeMap<u64, u64>) -> BTreeMap<u64, String> {
    fingerprints.iter().map(|(seed, print)| (*seed, format!("{print:016x}"))).collect()
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

#[cfg(test)]
mod tests {
    use weightcast_protocol::Time;
    use weightcast_sim::Violation;

    use super::*;

    fn caught(seed: u64) -> Option<Catch> {
        let (invariant, detail) = ("S1".to_owned(), "torn".to_owned());
        Some(Catch { seed, violation: Violation { invariant, step: 7, at: Time(0), detail } })
    }

    /// The worlds up to the one that shows it, that one too; else all.
    #[test]
    fn worlds_are_counted_from_the_first_seed() {
        let mutant = &MUTANTS[0];
        for (seeds, seed, worlds) in [
            (0..200, Some(0), 1),
            (0..200, Some(199), 200),
            (40..50, Some(40), 1),
            (40..50, Some(44), 5),
            (40..50, None, 10),
        ] {
            let report = CatchReport::of(mutant, seeds, seed.and_then(caught));
            assert_eq!((report.worlds, report.seed, report.caught), (worlds, seed, seed.is_some()));
            let told = report.to_string();
            let counted = format!("worlds {worlds}");
            assert!(told.contains(mutant.name) && told.contains(&counted), "{told}");
            assert_eq!(told.starts_with("NOT CAUGHT"), seed.is_none(), "{told}");
            if let Some(seed) = seed {
                assert!(told.contains(&format!("S1   seed {seed}, step 7, ")), "{told}");
                assert!(told.ends_with(": torn"), "{told}");
            }
        }
    }

    /// Of violations the first ten; of options and points what there is.
    #[test]
    fn a_campaign_is_told_line_by_line() {
        for (violations, options, unrepeatable) in [
            (0, "", vec![]),
            (1, "--harsh", vec![3]),
            (10, "", vec![]),
            (12, "--servers 4", vec![4, 5]),
        ] {
            let summary = Summary {
                seeds: 20,
                time: weightcast_protocol::Span(5_400_000_000_000),
                events: 77,
                faults: BTreeMap::from([("cut", 2), ("kill", 3)]),
                violations: (0..violations)
                    .map(|n| (n, caught(n).expect("one").violation))
                    .collect(),
                repeated: 2,
                unrepeatable: unrepeatable.clone(),
                ..Summary::default()
            };
            let harsh = crate::harshness::tests::given(options).expect("options");
            let report = SimReport::of(&summary, &harsh, Duration::from_millis(1_500));
            let text = report.table();
            let found: Vec<&str> = text.lines().map(str::trim_end).collect();
            let said = |line: &str| found.iter().filter(|found| **found == line).count();
            for line in [
                "worlds          20 in 1.5 s",
                "virtual hours   1.50",
                "events          77",
                "faults          5",
                "                       2  cut",
                "                       3  kill",
                &format!("played twice    2, {} differed", unrepeatable.len()),
                &format!("violations      {violations}"),
            ] {
                assert_eq!(said(line), 1, "{line:?} in {text}");
            }
            let line = format!("options         {options}");
            assert_eq!(said(&line), usize::from(!options.is_empty()), "{text}");
            let shown: Vec<&str> = text.lines().filter(|line| line.contains("S1 in")).collect();
            for (seed, line) in shown.iter().enumerate() {
                assert!(line.ends_with(&format!("S1 in seed {seed} at step 7: torn")), "{line}");
            }
            let shown = shown.len() as u64;
            assert_eq!(shown, violations.min(10), "{text}");
            let coverage = summary.coverage();
            assert_eq!(text.matches("  missed  ").count(), coverage.missed.len());
            let reached = format!("coverage        {} of {} points", coverage.hit, coverage.total);
            assert_eq!(said(&reached), 1, "{text}");
        }
    }

    #[test]
    fn mutants_are_listed_as_they_are() {
        let listed: serde_json::Value = serde_json::from_str(&mutants_json()).unwrap();
        let table = mutants_table();
        let mut lines = table.lines();
        for (number, mutant) in MUTANTS.iter().enumerate() {
            let entry = &listed[number];
            assert_eq!(
                (&entry["name"], &entry["what"]),
                (&mutant.name.into(), &mutant.what.into())
            );
            assert_eq!(entry["found_by"], serde_json::json!(mutant.found_by));
            let line = lines.next().expect("a line");
            assert!(line.starts_with(mutant.name) && line.ends_with(mutant.what), "{line}");
            assert!(line.contains(&mutant.found_by.join(" or ")), "{line}");
        }
        assert_eq!((lines.next(), listed.as_array().map(Vec::len)), (None, Some(MUTANTS.len())));
    }

    #[test]
    fn one_mutant_is_an_object_and_several_are_a_list() {
        let of = |count: u64| -> Vec<CatchReport> {
            (0..count).map(|seed| CatchReport::of(&MUTANTS[0], 0..9, caught(seed))).collect()
        };
        for (count, one, list) in
            [(1, true, false), (1, false, true), (2, false, true), (0, false, true)]
        {
            let text = CatchReport::json(&of(count), one);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.is_array(), list, "{count} {one}");
            assert!(text.ends_with('\n'));
        }
    }
}
