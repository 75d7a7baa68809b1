//! A virtual cluster that drives weightcast's real protocol: the server and session machines run
//! as they do in a job, only the bytes, the wires and the clocks are made up.
//!
//! A world is a queue of events and a seed. [`run`] plays one: processes of trainers and rollouts
//! run their programs while streams break, processes crash or are suspended, the network delays
//! and bits flip; then the faults cease, and everything must come right again. After each event
//! the `checkers` compare what happened with the invariants; a checker is trusted only because
//! it finds the bug when a safeguard is switched off ([`Options::mutants`]).
//!
//! [`run`]: run()

#![forbid(unsafe_code)]

mod acting;
mod checkers;
mod clock;
mod faults;
mod hosting;
mod memory;
mod network;
mod options;
mod process;
mod program;
mod queue;
mod reading;
mod report;
mod rng;
mod runtime;
mod world;

pub use options::{FaultCounts, Options};
pub use report::{Report, Violation};

/// Plays one world: the same seed and options give the same report, event for event.
pub fn run(seed: u64, options: &Options) -> Report {
    world::World::new(seed, options.clone()).play()
}
