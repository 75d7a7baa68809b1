//! `weightcast bench`: the cost of transfers, beside what this machine could do at best.
//!
//! [`transfer`] times updates, [`offload`] the copying aside of a last copy, [`quantise`] FP8,
//! [`plans`] the planner. [`control`] loads a reference server. [`fanout`] and [`elastic`] measure
//! over [`emulated`] hosts, and [`nemesis`] torments real processes there. All share [`weights`]
//! (the tensors that are moved) and [`base`] (clocks, this machine, processes of this program).

#![forbid(unsafe_code)]

mod base;
mod control;
mod elastic;
mod emulated;
mod fanout;
mod holders;
mod nemesis;
mod offload;
mod plans;
mod quantise;
mod transfer;
mod weights;

use clap::{Parser, Subcommand};

/// Measures transfers beside the limits of this machine
#[derive(Parser)]
#[command(
    name = "weightcast-bench",
    bin_name = "weightcast bench",
    version = weightcast_cli::BUILD,
    max_term_width = 100
)]
struct BenchArguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Time updates by every way, beside bare process_vm_readv, sockets and memcpy in the same run
    Transfer(transfer::TransferOf),
    /// Load one server with thousands of sessions: latency at a rate, a herd, cost against size
    Control(control::ControlOf),
    /// Spread a version over emulated hosts with links of a set rate: everybody's stall (needs root)
    Fanout(fanout::FanoutOf),
    /// Draw a version from several replicas over emulated hosts with unlike links (needs root)
    Holders(holders::HoldersOf),
    /// Let spot replicas join and die by a script over emulated hosts: joiners' stall (needs root)
    Elastic(elastic::ElasticOf),
    /// Time an unpublish that copies the last retained copy aside, beside memcpy in the same run
    Offload(offload::OffloadOf),
    /// Plan the transfers that published systems report; time the planner
    Plan(plans::PlanOf),
    /// Quantise to FP8 beside memcpy of the same bytes in the same run
    Quantise(quantise::QuantiseOf),
    /// Kill, stop, cut off and slow down real processes by a seeded schedule; look at every byte
    #[command(hide = true)]
    Nemesis(nemesis::NemesisOf),
    /// A worker on an emulated host.
    #[command(hide = true)]
    Worker,
    /// Removes emulated hosts when the process that made them ends.
    #[command(hide = true)]
    Sweeper {
        /// What the names of its namespaces begin with.
        prefix: String,
    },
    /// A source process of `transfer`.
    #[command(hide = true)]
    Source,
    /// The command line of the same build: its reference server is what is measured.
    #[command(hide = true, disable_help_flag = true)]
    Weightcast {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Runs a bench; returns the exit status: 0, 1 for a failure, 2 for wrong usage.
pub fn run(arguments: Vec<String>) -> i32 {
    match BenchArguments::try_parse_from(arguments) {
        Ok(arguments) => arguments.bench.run(),
        Err(error) => {
            let _ = error.print();
            error.exit_code()
        }
    }
}

impl Bench {
    fn run(self) -> i32 {
        weightcast_cli::log_to_stderr();
        weightcast_cli::exit_status(match self {
            Self::Transfer(transfer) => transfer::run(&transfer),
            Self::Control(control) => control::run(&control),
            Self::Fanout(fanout) => fanout::run(&fanout),
            Self::Holders(holders) => holders::run(&holders),
            Self::Elastic(elastic) => elastic::run(&elastic),
            Self::Offload(offload) => offload::run(&offload),
            Self::Plan(plan) => plans::run(&plan),
            Self::Quantise(quantise) => quantise::run(&quantise),
            Self::Nemesis(nemesis) => nemesis::run(&nemesis),
            Self::Worker => emulated::worker::run(),
            Self::Sweeper { prefix } => emulated::sweeper::run(&prefix),
            Self::Source => transfer::source::run(),
            Self::Weightcast { arguments } => return weightcast(arguments),
        })
    }
}

fn weightcast(arguments: Vec<String>) -> i32 {
    weightcast_cli::run(std::iter::once("weightcast".to_owned()).chain(arguments).collect())
}
