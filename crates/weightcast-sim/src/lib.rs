//! A virtual cluster that drives weightcast's real protocol: the server and session machines run
//! as they do in a job, only the bytes, the wires and the clocks are made up.
//!
//! A world is a queue of events and a seed. [`run`] plays one: processes of trainers and rollouts
//! run their programs while streams break, processes crash or are suspended, the network delays
//! and bits flip; then the faults cease, and everything must come right again. After each event
//! the `checkers` compare what happened with the invariants; a checker is trusted only because
//! it finds the bug when a safeguard is switched off (`weightcast-mutants`).
//!
//! [`campaign`] plays many worlds, each of a kind of its own ([`Options::drawn`]), and says what
//! they have been through ([`Coverage`]); [`replay`] tells the story of one.
//!
//! [`run`]: run()
//! [`campaign`]: campaign()
//! [`replay`]: replay()

#![forbid(unsafe_code)]

mod acting;
mod agreement;
mod baseline;
mod campaign;
mod checkers;
mod chunk_loop;
mod clock;
mod coverage;
mod failover_sights;
mod fault_kinds;
mod faults;
mod fingerprint;
mod halfway;
mod harshness;
mod hosting;
mod hosts;
mod lease_sights;
mod memory;
mod network;
mod offload;
mod options;
mod pinned;
mod pretender;
mod process;
mod program;
mod progress;
mod queue;
mod reading;
mod recorded;
mod report;
mod retained;
mod rng;
mod runtime;
pub mod scenario;
mod seed_sights;
mod seeding;
mod sights;
#[cfg(test)]
mod snapshots;
mod staging;
mod staging_sights;
mod story;
mod striping_sights;
mod swarm;
mod watching;
mod weight;
mod workers;
mod world;

pub use campaign::{Catch, Summary, campaign, hunt};
pub use coverage::{Coverage, Point};
pub use fault_kinds::{FaultCounts, FaultKind};
pub use harshness::Harshness;
pub use memory::{Exposed, Memory, chunks_of};
pub use options::Options;
pub use pinned::Pinned;
pub use recorded::{RECORDED, Recorded};
pub use report::{Report, Violation};
pub use story::{Story, StoryEvent};

/// Plays one world: the same seed and options give the same report, event for event.
pub fn run(seed: u64, options: &Options) -> Report {
    world::World::new(seed, options.clone()).play_until(|_| false)
}

/// Plays one world and tells what happened in it.
pub fn replay(seed: u64, options: &Options) -> (Report, Vec<StoryEvent>) {
    world::World::new(seed, options.clone()).tell()
}
