//! weightcast: the command line. One file per command.

#![forbid(unsafe_code)]

mod bench;
mod harshness;
mod layout;
mod open_files;
mod output;
mod plan;
mod replay;
mod scenario;
mod serve;
mod sim;
mod sim_report;
mod status;
mod verify;

use clap::{Parser, Subcommand};

pub use status::status_json;
pub use verify::verdict_json;

/// Moves model weights from the trainers of a reinforcement-learning job to its rollout workers.
#[derive(Parser)]
#[command(name = "weightcast", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a reference server: it knows who holds which version; weights never pass through it.
    Serve(serve::Serve),
    /// Show models, versions, replicas, shards, and who reads from whom.
    Status(status::StatusOf),
    /// Compare what live replicas of any layouts hold, without moving it; says where it differs
    Verify(verify::Verify),
    /// Show what a rank of a trainer or an engine holds, by rule
    Layout(layout::LayoutOf),
    /// Plan a transfer from all ranks of a trainer to all ranks of engines
    Plan(Box<plan::Plan>),
    /// Measure transfers beside the limits of this machine.
    Bench(bench::Bench),
    /// Play random clusters against the real protocol, with every fault there is, and check it
    Sim(sim::Sim),
    /// Tell the story of one simulated cluster
    Replay(replay::Replay),
    /// Run the demo: a reinforcement-learning loop (of the Python package; see `demo --help`).
    #[command(disable_help_flag = true)]
    Demo {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Runs the command line; returns the exit status: 0, 1 for a failure, 2 for wrong usage;
/// those of `verify` are its own.
pub fn run(arguments: Vec<String>) -> i32 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    log_to_stderr();
    let result = match arguments.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Status(status) => status::run(status),
        Command::Verify(verify) => return verify::run(verify),
        Command::Layout(layout) => layout::run(&layout),
        Command::Plan(plan) => plan::run(&plan),
        Command::Bench(bench) => bench::run(&bench),
        Command::Sim(sim) => sim::run(&sim),
        Command::Replay(replay) => replay::run(&replay),
        Command::Demo { arguments } => demo(&arguments),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("weightcast: {error:#}");
            1
        }
    }
}

/// `WEIGHTCAST_LOG` chooses what is logged, as `RUST_LOG` does elsewhere; warnings by default.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WEIGHTCAST_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    // A second command in one process keeps the first one's log.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// The demo is a Python program; the package's own command starts it without coming here.
fn demo(arguments: &[String]) -> anyhow::Result<()> {
    let mut python = std::process::Command::new("python3");
    python.args(["-m", "weightcast.examples.rl_loop"]).args(arguments);
    match python.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => anyhow::bail!("the demo ended with {status}"),
        Err(error) => anyhow::bail!("cannot start python3: {error}; pip install weightcast"),
    }
}
