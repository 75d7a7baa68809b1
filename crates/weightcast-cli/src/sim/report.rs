//! What `sim` prints. The words of the JSON are fixed: other programs read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use weightcast_sim::CampaignSummary;

use super::harshness::Harsh;

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
    pub(crate) fn of(summary: &CampaignSummary, options: &Harsh, wall: Duration) -> Self {
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

#[cfg(test)]
mod tests {
    use weightcast_protocol::Time;
    use weightcast_sim::InvariantViolation;

    use super::*;

    fn torn(seed: u64) -> (u64, InvariantViolation) {
        let (invariant, detail) = ("S1".to_owned(), "torn".to_owned());
        (seed, InvariantViolation { invariant, step: 7, at: Time(0), detail })
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
            let summary = CampaignSummary {
                seeds: 20,
                time: weightcast_protocol::Span(5_400_000_000_000),
                events: 77,
                faults: BTreeMap::from([("cut", 2), ("kill", 3)]),
                violations: (0..violations).map(torn).collect(),
                repeated: 2,
                unrepeatable: unrepeatable.clone(),
                ..CampaignSummary::default()
            };
            let harsh = crate::sim::harshness::tests::given(options).expect("options");
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
}
