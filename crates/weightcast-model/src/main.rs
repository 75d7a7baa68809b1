//! `weightcast-model`: explores, prints what it saw, exits with 1 if it is not what it should be.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use weightcast_model::{Bounds, Found, NAMES, mutants, search};

/// Explores every order of events of a small cluster.
#[derive(Parser)]
struct Arguments {
    /// Switch safeguards off, joined by +, and expect a story that shows it
    #[arg(long)]
    mutant: Option<String>,
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
    /// Versions that are published
    #[arg(long, default_value_t = 2)]
    versions: u64,
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
    let arguments = Arguments::parse();
    if arguments.list_mutants {
        NAMES.iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let base =
        if arguments.group_of_two { Bounds::group_of_two() } else { Bounds::three_workers() };
    let bounds = Bounds {
        versions: arguments.versions,
        expiries: arguments.expiries,
        cuts: arguments.cuts,
        slow_up: arguments.slow_up,
        mutants: mutants(arguments.mutant.as_deref().unwrap_or_default())
            .map_err(anyhow::Error::msg)?,
        only: arguments.only.clone().map(|only| &*only.leak()),
        ..base
    };
    let found = search(bounds, arguments.threads, arguments.seconds.map(Duration::from_secs));
    print(&bounds, &found);
    let right = match arguments.mutant {
        Some(_) => !found.broken.is_empty(),
        None => found.broken.is_empty() && found.exhaustive && found.missed.is_empty(),
    };
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(bounds: &Bounds, found: &Found) {
    println!(
        "{} rollouts of {} shards, {} versions, {} false expiries, {} drain deadlines",
        bounds.rollouts, bounds.rollout_shards, bounds.versions, bounds.expiries, bounds.cuts
    );
    println!(
        "{} unique states, {} steps, depth {}, {:.1} s, {}",
        found.unique,
        found.taken,
        found.depth,
        found.time.as_secs_f64(),
        if found.exhaustive { "exhaustive" } else { "not exhaustive" }
    );
    for missed in &found.missed {
        println!("never seen: {missed}");
    }
    for (invariant, story) in &found.broken {
        println!("{invariant} broken:\n{story}");
    }
}
