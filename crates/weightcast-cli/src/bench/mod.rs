//! `weightcast bench`: what a transfer costs here, beside what this machine could do at best.
//!
//! To follow a measurement: `transfer` (the command), `turns` (limits and stack by turns), `stack`
//! (the target in this process), `child` and `source` (the publisher in processes of its own),
//! `limits`. What is moved: `cases`, `qwen`, `layouts`, `memory`.

mod cases;
mod child;
mod control;
mod layouts;
mod limits;
mod measure;
mod memory;
mod orders;
mod program;
mod publish;
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
    /// A source process of `transfer`.
    #[command(hide = true)]
    Source,
}

pub(crate) fn run(arguments: &Bench) -> anyhow::Result<()> {
    match &arguments.what {
        What::Transfer(transfer) => transfer::run(transfer),
        What::Control(control) => control::run(control),
        What::Source => source::run(),
    }
}
