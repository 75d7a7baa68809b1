//! `weightcast-explore`: explores, prints what it saw, exits with 1 if it is not what it should be.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use weightcast_explore::{Bounds, MUTANTS, SearchResult, search, suite, without};

/// Explores every order of events of a small cluster.
#[derive(Parser)]
struct ExploreOptions {
    /// Switch safeguards off, joined by +, and expect a story that shows it
    #[arg(long)]
    mutant: Option<String>,
    /// Look at all that must hold, and at what each safeguard is there for
    #[arg(long)]
    suite: bool,
    /// The names of the safeguards
    #[arg(long)]
    list_mutants: bool,
    /// A trainer and one rollout of two shards, instead of two rollouts of one
    #[arg(long)]
    group_of_two: bool,
    /// Leases that the server takes for expired by mistake
    #[arg(long, default_value_t = 1)]
    expiries: u32,
    /// Drain deadlines that pass
    #[arg(long, default_value_t = 0)]
    cuts: u32,
    /// Times that the one server starts anew and knows nothing
    #[arg(long, default_value_t = 0)]
    restarts: u32,
    /// The first of two servers may die for good
    #[arg(long)]
    death: bool,
    /// Workers that lose a server which lives, and go to the other of two
    #[arg(long, default_value_t = 0)]
    partings: u32,
    /// Rollout replicas
    #[arg(long)]
    rollouts: Option<u32>,
    /// Versions that are published
    #[arg(long, default_value_t = 2)]
    versions: u64,
    /// Reads of each rollout
    #[arg(long, default_value_t = 2)]
    reads: u64,
    /// Let messages to the server linger as well
    #[arg(long)]
    slow_up: bool,
    /// Look at this invariant alone, such as S1
    #[arg(long)]
    only: Option<String>,
    /// Threads; one gives a shortest story
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Stop after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = ExploreOptions::parse();
    if arguments.list_mutants {
        MUTANTS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.suite {
        return Ok(run_suite(arguments.threads));
    }
    let base =
        if arguments.group_of_two { Bounds::group_of_two() } else { Bounds::three_workers() };
    let bounds = Bounds {
        versions: arguments.versions,
        reads: arguments.reads,
        expiries: arguments.expiries,
        cuts: arguments.cuts,
        restarts: arguments.restarts,
        death: arguments.death,
        partings: arguments.partings,
        rollouts: arguments.rollouts.unwrap_or(base.rollouts),
        slow_up: arguments.slow_up,
        safeguards: without(arguments.mutant.as_deref().unwrap_or_default())
            .map_err(anyhow::Error::msg)?,
        only: arguments.only.clone().map(|only| &*only.leak()),
        ..base
    };
    let found = search(bounds, arguments.threads, arguments.seconds.map(Duration::from_secs));
    println!("{}", summary(&bounds, &found));
    print_findings(&found);
    let right = match arguments.mutant {
        Some(_) => !found.broken.is_empty(),
        None => found.broken.is_empty() && found.exhaustive && found.missed.is_empty(),
    };
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether all cases are as they should be.
fn run_suite(threads: usize) -> ExitCode {
    let mut right = true;
    for case in suite() {
        // The first story of one thread is a shortest one.
        let found = search(case.bounds, if case.found.is_some() { 1 } else { threads }, None);
        let summary = summary(&case.bounds, &found);
        let Some(expected) = case.found else {
            println!("{summary}");
            right &= found.exhaustive && found.missed.is_empty();
            print_findings(&found);
            continue;
        };
        let story = found.broken.iter().find(|(invariant, _)| *invariant == expected);
        right &= story.is_some();
        let steps = story.map_or(0, |(_, story)| story.lines().count().saturating_sub(1));
        let how = match story {
            Some(_) => format!("{expected} broken in {steps} steps"),
            None => format!("NOT FOUND: {expected}"),
        };
        println!("{}: {how} ({summary})", case.off);
    }
    println!("{}", if right { "all as it should be" } else { "NOT as it should be" });
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn summary(bounds: &Bounds, found: &SearchResult) -> String {
    format!(
        "{bounds}: {} unique states, {} steps, depth {}, {:.1} s, {}",
        found.unique,
        found.taken,
        found.depth,
        found.time.as_secs_f64(),
        if found.exhaustive { "exhaustive" } else { "not exhaustive" }
    )
}

fn print_findings(found: &SearchResult) {
    for missed in &found.missed {
        println!("never seen: {missed}");
    }
    for (invariant, story) in &found.broken {
        println!("{invariant} broken:\n{story}");
    }
}
