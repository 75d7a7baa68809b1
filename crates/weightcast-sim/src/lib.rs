//! A virtual cluster that drives weightcast's real protocol: the server and session machines run
//! as they do in a job, only the bytes, the wires and the clocks are made up.
//!
//! A world is a queue of events and a seed. [`run`] plays one: processes of trainers and rollouts
//! run their programs while streams break, processes crash or are suspended, the network delays
//! and bits flip; then the faults cease, and everything must come right again. After each event
//! the `checkers` compare what happened with the invariants; a checker is trusted only because
//! it finds the bug when a safeguard is switched off (`weightcast-mutants`).
//!
//! [`campaign`] plays many worlds, each of a kind of its own ([`WorldOptions::drawn`]), and says what
//! they have been through ([`Coverage`]); [`replay`] tells the story of one.
//!
//! Reading order: `settings` (what a world is like), `parts` (what a world is made of), `world` (the loop), `processes`
//! and `servers` (what they do in a world), `faults` (what strikes them), `checkers` with `books` (what must hold),
//! `sights` (what a world has been through), `report` and `campaign` (what came of one world, and of many). `recorded`
//! keeps worlds in which something went wrong, and [`scenario`] is a second simulator: it predicts how long transfers
//! take. `updates` and `pushes` have worlds of their own: inference engines that take new versions in; senders that write
//! versions into the memory of targets. No room imports a room that imports it.
//!
//! [`run`]: run()
//! [`campaign`]: campaign()
//! [`replay`]: replay()

#![forbid(unsafe_code)]

mod base;
mod books;
mod campaign;
mod checkers;
mod faults;
mod parts;
mod processes;
mod pushes;
mod recorded;
mod report;
pub mod scenario;
mod servers;
mod settings;
mod sights;
mod updates;
mod world;

pub use campaign::pinned::Pinned;
pub use campaign::{CampaignSummary, Catch, campaign, hunt};
pub use pushes::{
    PushCampaign, PushFault, PushOptions, PushPoint, PushStory, PushWorldReport,
    campaign_of_pushes, hunt_pushes, run_pushes, tell_pushes,
};
pub use recorded::{RECORDED, Recorded};
pub use report::retelling::{Retelling, RetoldEnd, retell, watch};
pub use report::story::{Story, StoryEvent};
pub use report::{InvariantViolation, Report};
pub use settings::fault_kinds::{FaultCounts, FaultKind};
pub use settings::harshness::Harshness;
pub use settings::options::WorldOptions;
pub use sights::coverage::{Coverage, Point};
pub use updates::{
    UpdateCampaign, UpdateFault, UpdateOptions, UpdatePoint, UpdateReport, UpdateStory,
    campaign_of_updates, hunt_updates, run_updates, tell_updates,
};

use weightcast_protocol::recording::Recording;

/// Plays one world: the same seed and options give the same report, event for event.
pub fn run(seed: u64, options: &WorldOptions) -> Report {
    world::World::new(seed, options.clone()).play_until(|_| false)
}

/// Plays one world whose servers and sessions have recorders (`WorldOptions::recorders`); the recordings of all of them.
pub fn record(seed: u64, options: &WorldOptions) -> Vec<Recording> {
    world::World::new(seed, options.clone()).record()
}

/// Plays one world and tells what happened in it.
pub fn replay(seed: u64, options: &WorldOptions) -> (Report, Vec<StoryEvent>) {
    world::World::new(seed, options.clone()).tell()
}
