//! `weightcast-explore`: explores, prints what it saw, exits with 1 if it is not what it should be.

mod options;
mod printing;

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use weightcast_explore::{
    EXPLORED_PUSH_MUTANTS, ExploredWorld, FLEET_MUTANTS, MUTANTS, SearchResult, SuiteCase,
    fleet_suite, fleet_without, push_suite, push_without, search, suite, without,
};
use weightcast_protocol::{Safeguard, Safeguards};

use crate::options::{ExploreCommand, ExploreOptions, ExploredSize, SearchOptions};
use crate::printing::{PrintedCase, print_expected, print_found, print_json};

/// A world that can be searched on several threads.
trait SearchedWorld:
    ExploredWorld<State: Debug + Hash + Send + Sync, Action: Debug + Send + Sync>
    + Display
    + Send
    + Sync
    + 'static
{
}

impl<W> SearchedWorld for W where
    W: ExploredWorld<State: Debug + Hash + Send + Sync, Action: Debug + Send + Sync>
        + Display
        + Send
        + Sync
        + 'static
{
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = ExploreOptions::parse();
    let right = match arguments.other {
        None if arguments.search.suite => run_all(&arguments.search),
        None => run(arguments.cluster, &arguments.search, &MUTANTS, without, suite)?,
        Some(ExploreCommand::Fleet { fleet, search }) => {
            run(fleet, &search, &FLEET_MUTANTS, fleet_without, fleet_suite)?
        }
        Some(ExploreCommand::Push { push, search }) => {
            run(push, &search, &EXPLORED_PUSH_MUTANTS, push_without, push_suite)?
        }
    };
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Does what the options say for one kind of world; whether all was as it should be.
fn run<W: SearchedWorld>(
    size: impl ExploredSize<W>,
    options: &SearchOptions,
    mutants: &[(&str, Safeguard)],
    without: fn(&str) -> Result<Safeguards, String>,
    suite: fn() -> Vec<SuiteCase<W>>,
) -> anyhow::Result<bool> {
    if options.list_mutants {
        mutants.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(true);
    }
    if options.suite {
        return Ok(run_suite(suite(), options));
    }
    let off = options.mutant.as_deref().unwrap_or_default();
    let only = options.only.clone().map(|only| &*only.leak());
    let bounds = size.bounds(without(off).map_err(anyhow::Error::msg)?, only);
    let found = search(bounds, options.threads, options.seconds.map(Duration::from_secs));
    let right = match options.mutant {
        Some(_) => !found.broken.is_empty(),
        None => is_whole(&found),
    };
    let case = PrintedCase { world: &bounds.to_string(), expected: only, off };
    match options.json {
        true => print_json(case, &found, right),
        false => print_found(case, &found),
    }
    Ok(right)
}

/// Every suite there is.
fn run_all(options: &SearchOptions) -> bool {
    let cluster = run_suite(suite(), options);
    let fleet = run_suite(fleet_suite(), options);
    let push = run_suite(push_suite(), options);
    let right = cluster && fleet && push;
    if !options.json {
        println!("{}", if right { "all as it should be" } else { "NOT as it should be" });
    }
    right
}

/// Whether all cases are as they should be.
fn run_suite<W: SearchedWorld>(cases: Vec<SuiteCase<W>>, options: &SearchOptions) -> bool {
    let mut right = true;
    for case in cases {
        // The first story of one thread is a shortest one.
        let threads = if case.found.is_some() { 1 } else { options.threads };
        let found = search(case.bounds, threads, options.seconds.map(Duration::from_secs));
        right &= is_right(&case, &found, options.json);
    }
    right
}

/// Prints what was found in one case: whether it is what must be found there.
fn is_right<W: SearchedWorld>(case: &SuiteCase<W>, found: &SearchResult, json: bool) -> bool {
    let right = match case.found {
        None => is_whole(found),
        Some(expected) => found.broken.iter().any(|(invariant, _)| *invariant == expected),
    };
    let world = case.bounds.to_string();
    let printed = PrintedCase { world: &world, expected: case.found, off: case.off };
    match (json, case.found) {
        (true, _) => print_json(printed, found, right),
        (false, None) => print_found(printed, found),
        (false, Some(expected)) => print_expected(printed, expected, found),
    }
    right
}

fn is_whole(found: &SearchResult) -> bool {
    found.broken.is_empty() && found.exhaustive && found.missed.is_empty()
}
