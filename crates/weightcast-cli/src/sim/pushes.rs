//! `weightcast sim --pushes`: plays worlds of pushes. The words of the JSON are fixed: other programs read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use weightcast_sim::{PushCampaign, PushPoint, campaign_of_pushes};

use super::{SeedProgress, Sim};

/// A campaign of worlds of pushes.
#[derive(Serialize)]
struct PushesReport {
    version: &'static str,
    seeds: u64,
    events: u64,
    writes: u64,
    faults: BTreeMap<&'static str, u64>,
    /// How pushes ended, at each of their targets.
    outcomes: BTreeMap<&'static str, u64>,
    /// How often each point of the coverage table was reached.
    coverage: BTreeMap<&'static str, u64>,
    missed: Vec<&'static str>,
    violations: Vec<PushViolation>,
    repeated: u64,
    unrepeatable: Vec<u64>,
    wall_seconds: f64,
}

#[derive(Serialize)]
struct PushViolation {
    seed: u64,
    invariant: String,
    step: u64,
    detail: String,
}

impl PushesReport {
    fn of(campaign: &PushCampaign, wall: Duration) -> Self {
        let points = PushPoint::ALL.iter();
        let reached = |point: &PushPoint| campaign.points.get(point).copied().unwrap_or_default();
        let violations = campaign.violations.iter().map(|(seed, violation)| PushViolation {
            seed: *seed,
            invariant: violation.invariant.clone(),
            step: violation.step,
            detail: violation.detail.clone(),
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            seeds: campaign.seeds,
            events: campaign.events,
            writes: campaign.writes,
            faults: campaign.faults.clone(),
            outcomes: campaign.outcomes.clone(),
            coverage: points.map(|point| (point.name(), reached(point))).collect(),
            missed: campaign.missed(),
            violations: violations.collect(),
            repeated: campaign.repeated,
            unrepeatable: campaign.unrepeatable.clone(),
            wall_seconds: wall.as_secs_f64(),
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{} worlds of pushes in {:.1} s: {} events, {} writes, {} violations\n",
            self.seeds,
            self.wall_seconds,
            self.events,
            self.writes,
            self.violations.len()
        );
        for (chapter, rows) in [("faults", rows(&self.faults)), ("reached", rows(&self.coverage))] {
            let _ = write!(text, "\n{chapter}\n{rows}");
        }
        let outcomes = self.outcomes.iter().map(|(name, count)| format!("{count:>9} {name}\n"));
        let _ = write!(text, "\nended\n{}", outcomes.collect::<String>());
        for PushViolation { seed, invariant, step, detail } in self.violations.iter().take(20) {
            let _ = writeln!(text, "!! {invariant} seed {seed}, step {step}: {detail}");
        }
        text
    }
}

fn rows(counts: &BTreeMap<&'static str, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{count:>9} {name}\n")).collect()
}

/// Plays the worlds, prints what came of them.
pub(super) fn run(arguments: &Sim) -> anyhow::Result<()> {
    let seeds = arguments.seeds();
    let number = seeds.end - seeds.start;
    let started = Instant::now();
    let progress = SeedProgress::new(number);
    let campaign = campaign_of_pushes(seeds, || progress.played());
    progress.end();
    let report = PushesReport::of(&campaign, started.elapsed());
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.table());
    }
    verdict(&report, arguments.must_cover(number))
}

/// An error unless the campaign is clean.
fn verdict(report: &PushesReport, covers: bool) -> anyhow::Result<()> {
    if let Some(first) = report.violations.first() {
        let (count, worlds, seed) = (report.violations.len(), report.seeds, first.seed);
        anyhow::bail!(
            "{count} of {worlds} worlds are broken; see one with: weightcast replay --pushes {seed}"
        );
    }
    if let Some(seed) = report.unrepeatable.first() {
        anyhow::bail!("seed {seed} came out different when it was played again");
    }
    if covers && !report.missed.is_empty() {
        anyhow::bail!("no world reached: {}", report.missed.join("; "));
    }
    Ok(())
}
