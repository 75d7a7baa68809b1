//! `weightcast-explore`: explores, prints what it saw, exits with 1 if it is not what it should be.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use weightcast_explore::{
    Bounds, ExploredWorld, FLEET_MUTANTS, FleetBounds, MUTANTS, SearchResult, fleet_suite,
    fleet_without, search, suite, without,
};

/// Explores every order of events of a small cluster, or of a small fleet of engines.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct ExploreOptions {
    #[command(subcommand)]
    fleet: Option<FleetCommand>,
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

#[derive(Subcommand)]
enum FleetCommand {
    /// A fleet of engines, its drivers and its register
    Fleet(FleetOptions),
}

#[derive(Args)]
struct FleetOptions {
    /// Switch safeguards off, joined by +, and expect a story that shows it
    #[arg(long)]
    mutant: Option<String>,
    /// The names of the safeguards
    #[arg(long)]
    list_mutants: bool,
    /// Engines of one worker each
    #[arg(long, default_value_t = 2)]
    engines: u32,
    /// Drivers that die; each has a successor
    #[arg(long, default_value_t = 0)]
    driver_deaths: u32,
    /// Drivers that get a successor although they live
    #[arg(long, default_value_t = 0)]
    splits: u32,
    /// Engines that die; each is started again
    #[arg(long, default_value_t = 0)]
    engine_deaths: u32,
    /// Registers that are lost
    #[arg(long, default_value_t = 0)]
    register_losses: u32,
    /// Timers of drivers that go off
    #[arg(long, default_value_t = 0)]
    timeouts: u32,
    /// Orders and questions that are lost
    #[arg(long, default_value_t = 0)]
    losses: u32,
    /// Look at this invariant alone, such as E4
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
    if let Some(FleetCommand::Fleet(options)) = arguments.fleet {
        return explore_fleet(options);
    }
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
    let broken = arguments.mutant.is_some();
    Ok(explore(bounds, &bounds.to_string(), broken, arguments.threads, arguments.seconds))
}

fn explore_fleet(options: FleetOptions) -> anyhow::Result<ExitCode> {
    if options.list_mutants {
        FLEET_MUTANTS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let off = options.mutant.as_deref().unwrap_or_default();
    let bounds = FleetBounds {
        engines: options.engines,
        driver_deaths: options.driver_deaths,
        splits: options.splits,
        engine_deaths: options.engine_deaths,
        register_losses: options.register_losses,
        timeouts: options.timeouts,
        losses: options.losses,
        safeguards: fleet_without(off).map_err(anyhow::Error::msg)?,
        only: options.only.clone().map(|only| &*only.leak()),
    };
    let broken = options.mutant.is_some();
    Ok(explore(bounds, &bounds.to_string(), broken, options.threads, options.seconds))
}

/// Explores one world, in which an invariant must break or must not.
fn explore<W>(world: W, name: &str, broken: bool, threads: usize, seconds: Option<u64>) -> ExitCode
where
    W: ExploredWorld + Send + Sync + 'static,
    W::State: std::fmt::Debug + std::hash::Hash + Send + Sync + 'static,
    W::Action: std::fmt::Debug + Send + Sync,
{
    let found = search(world, threads, seconds.map(Duration::from_secs));
    println!("{}", summary(name, &found));
    print_findings(&found);
    let right = match broken {
        true => !found.broken.is_empty(),
        false => found.broken.is_empty() && found.exhaustive && found.missed.is_empty(),
    };
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether all cases are as they should be.
fn run_suite(threads: usize) -> ExitCode {
    let mut right = true;
    for case in suite() {
        // The first story of one thread is a shortest one.
        let threads = if case.found.is_some() { 1 } else { threads };
        let found = search(case.bounds, threads, None);
        right &= is_right(&case.bounds.to_string(), case.found, case.off, &found);
    }
    for case in fleet_suite() {
        let threads = if case.found.is_some() { 1 } else { threads };
        let found = search(case.bounds, threads, None);
        right &= is_right(&case.bounds.to_string(), case.found, case.off, &found);
    }
    println!("{}", if right { "all as it should be" } else { "NOT as it should be" });
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what was found in one case: whether it is what must be found there.
fn is_right(name: &str, expected: Option<&str>, off: &str, found: &SearchResult) -> bool {
    let summary = summary(name, found);
    let Some(expected) = expected else {
        println!("{summary}");
        print_findings(found);
        return found.broken.is_empty() && found.exhaustive && found.missed.is_empty();
    };
    let story = found.broken.iter().find(|(invariant, _)| *invariant == expected);
    let steps = story.map_or(0, |(_, story)| story.lines().count().saturating_sub(1));
    let how = match story {
        Some(_) => format!("{expected} broken in {steps} steps"),
        None => format!("NOT FOUND: {expected}"),
    };
    println!("{off}: {how} ({summary})");
    story.is_some()
}

fn summary(name: &str, found: &SearchResult) -> String {
    format!(
        "{name}: {} unique states, {} steps, depth {}, {:.1} s, {}",
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
