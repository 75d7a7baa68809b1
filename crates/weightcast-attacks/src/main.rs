//! `weightcast-attacks`: attacks real servers, trainers and rollouts of this build with a client's
//! token, over loopback, and measures what honest workers feel meanwhile.
//!
//! The attacker ([`control`], [`data`], [`port`], [`forge`]) speaks the wire without the library.
//! [`victims`] starts what is attacked, [`traffic`] is what honest workers do beside it, [`usage`]
//! what it costs them, [`scene`] all of this for one attack, [`report`] the verdict. Each attack is
//! a file of `attacks`; [`random`] is well-formed nonsense for as long as one likes.

#![forbid(unsafe_code)]

mod attacks;
mod control;
mod data;
mod forge;
mod port;
mod random;
mod report;
mod runtime;
mod scene;
mod traffic;
mod usage;
mod victims;
mod wire;

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
