//! weightcast: the command line. A room per subject, a file per command.
//!
//! `job` speaks with a live job's server and replicas, `top` shows the job in a terminal, `plan` says
//! what ranks hold and what a transfer would move, `sim` plays virtual clusters, `plot` draws what was
//! measured, `trace` sums up the spans of calls, `programs` starts what is no part of this program: the
//! demo and the benches.

#![forbid(unsafe_code)]

mod job;
mod output;
mod plan;
mod plot;
mod programs;
mod sim;
mod top;
mod trace;

use clap::{Parser, Subcommand};

use job::{doctor, engines, record, serve, status, verify, why};
use plan::layout;
use sim::replay;

/// Which build this is: the release, and a hash of the sources. `weightcast bench` runs benches of the same
/// build only.
pub const BUILD: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (sources ", env!("WEIGHTCAST_SOURCES"), ")");

pub use job::open_files::allow_all as allow_open_files;
pub use job::status::status_json;
pub use job::verify::verdict_json;
pub use plan::layout::read_model;
pub use plan::{GivenTransfer, explain_json, plan_json};
pub use plot::svg_of;
pub use weightcast::log_to_stderr;

/// Moves model weights from the trainers of a reinforcement-learning job to its rollout workers.
#[derive(Parser)]
#[command(name = "weightcast", version, about, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a reference server: it knows who holds which version; weights never pass through it.
    Serve(serve::Serve),
    /// Show models, versions, replicas, shards, and who reads from whom.
    Status(status::StatusOf),
    /// Watch a job in a terminal: who holds and reads what, how fast, how stale, what went wrong
    Top(top::Top),
    /// Say why a replica's call waits: for what, who holds it up, what ends the wait.
    Why(why::WhyOf),
    /// List the engines that serve a model: to which of them a router may send requests.
    Engines(engines::EnginesOf),
    /// Have a server write down its last minutes, for `replay`
    Record(record::RecordOf),
    /// Compare what live replicas of any layouts hold, without moving it; says where it differs
    Verify(verify::Verify),
    /// Examine this host and job: what works, what does not, and what to do about it
    Doctor(doctor::Doctor),
    /// For `doctor` itself: the second process of its self-test
    #[command(name = doctor::READER, hide = true)]
    DoctorReader,
    /// Show what a rank of a trainer or an engine holds, by rule
    Layout(layout::LayoutOf),
    /// Plan a transfer from all ranks of a trainer to all ranks of engines
    Plan(Box<plan::PlanArguments>),
    /// Measure transfers beside the limits of this machine (a program of its own; see `bench --help`).
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Play random clusters against the real protocol, with every fault there is, and check it
    Sim(sim::Sim),
    /// Tell the story of one simulated cluster, or of what `record`, a failed call or a panic has left
    #[command(after_help = replay::STATUS)]
    Replay(replay::Replay),
    /// Draw what a bench, the demo or a scenario measured: JSON to SVG
    Plot(plot::Plot),
    /// Sum up the spans of calls that processes wrote (`open(trace=)`, `serve --trace`)
    Trace(trace::Trace),
    /// Write a version of a model as safetensors files (of the Python package; see `pull --help`).
    #[command(disable_help_flag = true)]
    Pull {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Publish a checkpoint of safetensors files (of the Python package; see `push --help`).
    #[command(disable_help_flag = true)]
    Push {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the demo: a reinforcement-learning loop (of the Python package; see `demo --help`).
    #[command(disable_help_flag = true)]
    Demo {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Runs the command line of this very program; see [`run_as`].
pub fn run(arguments: Vec<String>) -> i32 {
    let program = std::env::current_exe().map(|this| this.to_string_lossy().into_owned());
    run_as(&program.into_iter().collect::<Vec<_>>(), arguments)
}

/// Runs the command line; returns the exit status: 0, 1 for a failure, 2 for wrong usage;
/// those of `verify` are its own. `program` is a command that runs this command line again.
pub fn run_as(program: &[String], arguments: Vec<String>) -> i32 {
    let arguments = match CommandLine::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    log_to_stderr();
    exit_status(match arguments.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Status(status) => status::run(status),
        Command::Top(top) => top::run(top),
        Command::Why(why) => why::run(why),
        Command::Engines(engines) => engines::run(engines),
        Command::Record(record) => record::run(record),
        Command::Verify(verify) => return verify::run(verify),
        Command::Doctor(doctor) => return doctor::run(doctor, program),
        Command::DoctorReader => doctor::reader(),
        Command::Layout(layout) => layout::run(&layout),
        Command::Plan(plan) => plan::run(&plan),
        Command::Bench { arguments } => programs::bench(&arguments),
        Command::Sim(sim) => sim::run(&sim),
        Command::Replay(replay) => return replay::run(&replay),
        Command::Plot(plot) => plot::run(&plot),
        Command::Trace(trace) => trace::run(&trace),
        Command::Pull { arguments } => {
            programs::python(&[programs::CHECKPOINT, "pull"], &arguments)
        }
        Command::Push { arguments } => {
            programs::python(&[programs::CHECKPOINT, "push"], &arguments)
        }
        Command::Demo { arguments } => programs::python(&[programs::DEMO], &arguments),
    })
}

/// The exit status of a command, whose error is printed.
pub fn exit_status(result: anyhow::Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("weightcast: {error:#}");
            1
        }
    }
}
