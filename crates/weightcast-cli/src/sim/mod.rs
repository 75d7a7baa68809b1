//! `weightcast sim`: plays random clusters against the real protocol.

mod harshness;
mod pushes;
pub(crate) mod replay;
mod report;
mod scenario;
mod updates;

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use clap::Args;
use weightcast_sim::{CampaignSummary, campaign};

use harshness::Harsh;
use report::SimReport;

/// From so many seeds on, a coverage point that was not reached is a failure.
const COVERING_SEEDS: u64 = 1_000;

/// Arguments of `sim`.
#[derive(Args)]
pub(crate) struct Sim {
    /// Worlds to play, each from a seed of its own
    #[arg(long, default_value_t = COVERING_SEEDS,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1 << 62))]
    first_seed: u64,
    /// Fail if a coverage point is not reached; always so from 1000 seeds on
    #[arg(long)]
    require_coverage: bool,
    /// Play a scenario file instead: predicted beside reported
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "seeds", "first_seed", "require_coverage", "servers", "call_deadline", "fault_rate", "harsh",
    ])]
    scenario: Option<PathBuf>,
    /// Play worlds of engine updates instead: inference engines that take new versions in
    #[arg(long, conflicts_with_all = ["scenario", "servers", "call_deadline", "fault_rate", "harsh"])]
    updates: bool,
    /// Play worlds of pushes instead: senders that write versions into the memory of targets
    #[arg(long, conflicts_with_all = [
        "scenario", "updates", "servers", "call_deadline", "fault_rate", "harsh",
    ])]
    pushes: bool,
    #[command(flatten)]
    harsh: Harsh,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Sim {
    fn seeds(&self) -> Range<u64> {
        self.first_seed..self.first_seed + self.seeds
    }

    /// Whether so many worlds have to reach all coverage points.
    fn must_cover(&self, worlds: u64) -> bool {
        self.require_coverage || worlds >= COVERING_SEEDS
    }
}

pub(crate) fn run(arguments: &Sim) -> anyhow::Result<()> {
    if let Some(file) = &arguments.scenario {
        return scenario::run(file, arguments.json);
    }
    if arguments.updates {
        return updates::run(arguments);
    }
    if arguments.pushes {
        return pushes::run(arguments);
    }
    play_seeds(arguments)
}

fn play_seeds(arguments: &Sim) -> anyhow::Result<()> {
    let seeds = arguments.seeds();
    let number = seeds.end - seeds.start;
    let started = Instant::now();
    let progress = SeedProgress::new(number);
    let summary = campaign(seeds, arguments.harsh.harshness(), || progress.played());
    progress.end();
    let report = SimReport::of(&summary, &arguments.harsh, started.elapsed());
    print!("{}", if arguments.json { report.json() } else { report.table() });
    verdict(&summary, arguments.must_cover(number), &arguments.harsh.arguments())
}

/// An error unless the campaign is clean.
fn verdict(summary: &CampaignSummary, covers: bool, harsh: &str) -> anyhow::Result<()> {
    let worlds = summary.seeds;
    if let Some((seed, _)) = summary.violations.first() {
        let count = summary.violations.len();
        anyhow::bail!(
            "{count} violations in {worlds} worlds; see one with: weightcast replay {seed}{harsh}"
        );
    }
    if let Some(seed) = summary.unrepeatable.first() {
        anyhow::bail!("seed {seed} came out different when it was played again");
    }
    let missed = summary.coverage().missed;
    if covers && !missed.is_empty() {
        anyhow::bail!("no world reached: {}", missed.join("; "));
    }
    Ok(())
}

/// A line on stderr, if that is a terminal: how many worlds have been played.
struct SeedProgress {
    total: u64,
    played: AtomicU64,
    shown: bool,
}

impl SeedProgress {
    fn new(total: u64) -> Self {
        Self { total, played: AtomicU64::new(0), shown: std::io::stderr().is_terminal() }
    }

    fn played(&self) {
        let played = self.played.fetch_add(1, Relaxed) + 1;
        if self.shown && (played.is_multiple_of(10) || played == self.total) {
            let _ = write!(std::io::stderr(), "\r{played} of {} worlds", self.total);
        }
    }

    fn end(&self) {
        if self.shown {
            let _ = writeln!(std::io::stderr());
        }
    }
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::Time;
    use weightcast_sim::InvariantViolation;

    use super::*;

    #[test]
    fn a_thousand_worlds_have_to_reach_all_that_there_is() {
        #[derive(clap::Parser)]
        struct SimLine {
            #[command(flatten)]
            sim: Sim,
        }
        let sim = |options: &[&str]| {
            let line = [&["weightcast"], options].concat();
            <SimLine as clap::Parser>::try_parse_from(line).expect("options of sim").sim
        };
        let usual = sim(&[]);
        let seeds = usual.seeds();
        assert!(usual.must_cover(seeds.end - seeds.start), "the usual campaign");
        for (worlds, must) in [(1, false), (999, false), (1_000, true), (1_001, true)] {
            assert_eq!(usual.must_cover(worlds), must, "{worlds}");
            assert!(sim(&["--require-coverage"]).must_cover(worlds));
        }
    }

    /// What is wrong comes in this order: an invariant, a world that is not repeated, what was not
    /// reached. A campaign of no world has reached nothing.
    #[test]
    fn a_verdict_says_the_worst_and_what_to_do() {
        let violation = |invariant: &str| {
            let (invariant, detail) = (invariant.to_owned(), String::new());
            InvariantViolation { invariant, step: 1, at: Time(0), detail }
        };
        for covers in [false, true] {
            for unrepeatable in [vec![], vec![9, 8]] {
                for violations in [vec![], vec![(5, violation("S1")), (6, violation("S2"))]] {
                    let worst = (violations.is_empty(), unrepeatable.is_empty(), covers);
                    let summary = CampaignSummary {
                        seeds: 40,
                        violations,
                        unrepeatable: unrepeatable.clone(),
                        ..CampaignSummary::default()
                    };
                    let told = verdict(&summary, covers, " --harsh").err();
                    let told = told.map_or(String::new(), |error| error.to_string());
                    match worst {
                        (false, _, _) => assert_eq!(
                            told,
                            "2 violations in 40 worlds; see one with: weightcast replay 5 --harsh"
                        ),
                        (true, false, _) => assert!(told.starts_with("seed 9 came out different")),
                        (true, true, true) => assert!(told.starts_with("no world reached: ")),
                        (true, true, false) => assert_eq!(told, ""),
                    }
                }
            }
        }
    }
}
