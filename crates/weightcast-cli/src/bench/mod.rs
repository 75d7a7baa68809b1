//! `weightcast bench`: what a transfer costs here, beside what this machine could do at best.
//!
//! To follow a measurement: `transfer` (the command), `turns` (limits and stack by turns), `stack`
//! (the target in this process), `child` and `source` (the publisher in processes of its own),
//! `limits`. [`offload`] times the copying aside; [`control`] loads a reference server; [`fanout`]
//! and [`elastic`] measure over [`emulated`] hosts. What is moved: `cases`, `qwen`, `layouts`,
//! `memory`.

mod cases;
mod child;
mod control;
mod elastic;
mod emulated;
mod fanout;
mod layouts;
mod limits;
mod measure;
mod memory;
mod nemesis;
mod offload;
mod orders;
mod plans;
mod program;
mod publish;
mod quantise;
mod qwen;
mod report;
mod source;
mod stack;
mod table;
mod transfer;
mod turns;

use clap::{Args, Subcommand};

/// Arguments of `bench`.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Time updates by every way, beside bare process_vm_readv, sockets and memcpy in the same run
    Transfer(transfer::TransferOf),
    /// Load one server with thousands of sessions: latency at a rate, a herd, cost against size
    Control(control::ControlOf),
    /// Spread a version over emulated hosts with links of a set rate: everybody's stall (needs root)
    Fanout(fanout::FanoutOf),
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
}

pub(crate) fn run(arguments: &Bench) -> anyhow::Result<()> {
    match &arguments.what {
        What::Transfer(transfer) => transfer::run(transfer),
        What::Control(control) => control::run(control),
        What::Fanout(fanout) => fanout::run(fanout),
        What::Elastic(elastic) => elastic::run(elastic),
        What::Offload(offload) => offload::run(offload),
        What::Plan(plan) => plans::run(plan),
        What::Quantise(quantise) => quantise::run(quantise),
        What::Nemesis(nemesis) => nemesis::run(nemesis),
        What::Worker => emulated::worker::run(),
        What::Sweeper { prefix } => emulated::sweeper::run(prefix),
        What::Source => source::run(),
    }
}
