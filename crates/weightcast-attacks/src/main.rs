//! `weightcast-attacks`: attacks real servers, trainers and rollouts of this build with a client's
//! token, over loopback, and measures what honest workers feel meanwhile.
//!
//! [`attacker`] speaks the wire without the library. [`scene`] starts what is attacked, lets honest
//! workers work beside the attack, and measures what the attack costs them; [`report`] is the verdict.
//! Each attack is a file of [`attacks`]; [`random`] is well-formed nonsense for as long as one likes.

#![forbid(unsafe_code)]

mod attacker;
mod attacks;
mod random;
mod report;
mod scene;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Attacks this build of weightcast, on this machine alone.
#[derive(Parser)]
struct AttackArguments {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// Attacks to try, by name; all by default
    #[arg(long)]
    only: Vec<String>,
    /// The names of the attacks
    #[arg(long)]
    list: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Mode {
    /// Random well-formed frames against a server that checks itself, and a trainer's data port
    Random(random::RandomArguments),
    /// What another user of this host tries; started by the attack of that name
    #[command(hide = true)]
    Stranger(attacks::StrangerArguments),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = AttackArguments::parse();
    // Many attackers are many sockets.
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    match arguments.mode {
        Some(Mode::Random(random)) => return random::run(&random),
        Some(Mode::Stranger(stranger)) => return attacks::stranger(&stranger),
        None => {}
    }
    if arguments.list {
        for attack in attacks::ALL {
            println!("{:<22} {:<4} {}", attack.name, attack.item, attack.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    report::run(&arguments.only, arguments.json)
}
