//! `weightcast-mutants`: plays mutants of the protocol; exits with 1 if one is not found.

#![forbid(unsafe_code)]

mod report;

use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use weightcast_mutants::{Mutant, PlayedMutant};
use weightcast_sim::{Story, replay, tell_pushes, tell_updates};

use report::{CatchReport, mutants_json, mutants_table};

/// Plays weightcast's protocol with safeguards switched off, until the simulator's checkers notice.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct MutantArguments {
    #[command(subcommand)]
    command: MutantCommand,
}

#[derive(Subcommand)]
enum MutantCommand {
    /// Show the mutants: what each switches off, which invariants must notice
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Play a mutant until the checkers notice; `all` plays every mutant
    Hunt(HuntMutant),
    /// Tell the story of one world of a mutant
    Replay(ReplayMutant),
}

#[derive(Args)]
struct HuntMutant {
    /// The mutant's name, or `all`
    mutant: String,
    /// Worlds to play at most
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1 << 62))]
    first_seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ReplayMutant {
    /// The mutant's name
    mutant: String,
    /// The seed
    seed: u64,
    /// From this step on
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Up to this step
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(MutantArguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weightcast-mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: MutantCommand) -> anyhow::Result<()> {
    match command {
        MutantCommand::List { json } => {
            print!("{}", if json { mutants_json() } else { mutants_table() })
        }
        MutantCommand::Hunt(arguments) if arguments.mutant == "all" => {
            play(&arguments, &PlayedMutant::all().collect::<Vec<_>>())?;
        }
        MutantCommand::Hunt(arguments) => play(&arguments, &[mutant_named(&arguments.mutant)?])?,
        MutantCommand::Replay(arguments) => tell(&arguments)?,
    }
    Ok(())
}

fn mutant_named(name: &str) -> anyhow::Result<PlayedMutant> {
    PlayedMutant::named(name).ok_or_else(|| {
        let names: Vec<&str> = PlayedMutant::all().map(|mutant| mutant.name()).collect();
        anyhow::anyhow!("there is no mutant {name}; there are {}", names.join(", "))
    })
}

fn play(arguments: &HuntMutant, mutants: &[PlayedMutant]) -> anyhow::Result<()> {
    let seeds: Range<u64> = arguments.first_seed..arguments.first_seed + arguments.seeds;
    let mut reports = Vec::new();
    for mutant in mutants {
        let report = CatchReport::of(mutant, seeds.clone(), mutant.hunt(seeds.clone()));
        if !arguments.json {
            println!("{report}");
        }
        reports.push(report);
    }
    if arguments.json {
        // One mutant by name is one object, `all` is a list.
        print!("{}", CatchReport::json(&reports, arguments.mutant != "all"));
    }
    let missed: Vec<&str> = reports.iter().filter(|r| !r.caught).map(|r| r.mutant).collect();
    anyhow::ensure!(missed.is_empty(), "not caught: {}", missed.join(", "));
    Ok(())
}

fn tell(arguments: &ReplayMutant) -> anyhow::Result<()> {
    match mutant_named(&arguments.mutant)? {
        PlayedMutant::Cluster(mutant) => tell_cluster(arguments, mutant),
        PlayedMutant::Update(mutant) => {
            let report = tell_updates(arguments.seed, &mutant.options(arguments.seed));
            print_story(arguments, &report.story())
        }
        PlayedMutant::Push(mutant) => {
            let report = tell_pushes(arguments.seed, &mutant.options(arguments.seed));
            print_story(arguments, &report.story())
        }
    }
}

fn tell_cluster(arguments: &ReplayMutant, mutant: &Mutant) -> anyhow::Result<()> {
    let options = mutant.options(arguments.seed);
    let (report, events) = replay(arguments.seed, &options);
    print_story(arguments, &Story::of(&report, &options, &events, arguments.from..=arguments.to))
}

fn print_story(
    arguments: &ReplayMutant,
    story: &(impl std::fmt::Display + Serialize),
) -> anyhow::Result<()> {
    // Whoever reads may stop at any line.
    let mut out = std::io::stdout().lock();
    let _ = match arguments.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(story)?),
        false => writeln!(out, "{story}"),
    };
    Ok(())
}
