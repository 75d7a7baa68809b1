//! `weightcast sim --updates`: plays worlds of engine updates. The words of the JSON are fixed: other programs read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use weightcast_sim::{UpdateCampaign, UpdatePoint, campaign_of_updates};

use super::{SeedProgress, Sim};

/// A campaign of worlds of engine updates.
#[derive(Serialize)]
struct UpdatesReport {
    version: &'static str,
    seeds: u64,
    events: u64,
    tokens: u64,
    faults: BTreeMap<&'static str, u64>,
    /// Updates of single engines that ended: state, serving or not, step and reason.
    outcomes: BTreeMap<String, u64>,
    /// How often each point of the coverage table was reached.
    coverage: BTreeMap<&'static str, u64>,
    missed: Vec<&'static str>,
    violations: Vec<UpdateViolation>,
    repeated: u64,
    unrepeatable: Vec<u64>,
    wall_seconds: f64,
}

#[derive(Serialize)]
struct UpdateViolation {
    seed: u64,
    invariant: String,
    step: u64,
    detail: String,
}

impl UpdatesReport {
    fn of(campaign: &UpdateCampaign, wall: Duration) -> Self {
        let points = UpdatePoint::ALL.iter();
        let reached = |point: &UpdatePoint| campaign.points.get(point).copied().unwrap_or_default();
        let violations = campaign.violations.iter().map(|(seed, violation)| UpdateViolation {
            seed: *seed,
            invariant: violation.invariant.clone(),
            step: violation.step,
            detail: violation.detail.clone(),
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            seeds: campaign.seeds,
            events: campaign.events,
            tokens: campaign.tokens,
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
            "{} worlds of engine updates in {:.1} s: {} events, {} tokens, {} violations\n",
            self.seeds,
            self.wall_seconds,
            self.events,
            self.tokens,
            self.violations.len()
        );
        for (chapter, rows) in [("faults", rows(&self.faults)), ("reached", rows(&self.coverage))] {
            let _ = write!(text, "\n{chapter}\n{rows}");
        }
        let outcomes = self.outcomes.iter().map(|(name, count)| format!("{count:>9} {name}\n"));
        let _ = write!(text, "\nended\n{}", outcomes.collect::<String>());
        for UpdateViolation { seed, invariant, step, detail } in self.violations.iter().take(20) {
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
    let campaign = campaign_of_updates(seeds, || progress.played());
    progress.end();
    let report = UpdatesReport::of(&campaign, started.elapsed());
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.table());
    }
    verdict(&report, arguments.must_cover(number))
}

/// An error unless the campaign is clean.
fn verdict(report: &UpdatesReport, covers: bool) -> anyhow::Result<()> {
    if let Some(first) = report.violations.first() {
        let (count, worlds, seed) = (report.violations.len(), report.seeds, first.seed);
        anyhow::bail!(
            "{count} of {worlds} worlds are broken; see one with: weightcast replay --updates {seed}"
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
