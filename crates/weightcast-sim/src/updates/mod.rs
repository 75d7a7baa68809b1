//! Worlds of engine updates: fleets of inference engines that generate tokens while a driver brings them new versions.
//!
//! A small world of its own: the real machines of `weightcast_protocol::engine_update` run as they do in a job; engines,
//! workers, drivers, wires and the register are made up. Faults strike for a while; then all must come right.
//!
//! Reading order: `options` (what a world is like), `parts` (what it is made of), `checkers` (what must hold), `coverage`,
//! `report`, `world` (the loop), `acting` (what engines, drivers and faults do), `campaign`.

mod acting;
mod campaign;
mod checkers;
mod coverage;
mod options;
mod parts;
mod report;
mod world;

pub use campaign::{UpdateCampaign, campaign_of_updates, hunt_updates};
pub use coverage::UpdatePoint;
pub use options::{UpdateFault, UpdateOptions};
pub use report::{UpdateReport, UpdateStory};

/// Plays one world of updates: the same seed and options give the same report.
pub fn run_updates(seed: u64, options: &UpdateOptions) -> UpdateReport {
    world::UpdateWorld::new(seed, options.clone()).play(|_| false, false)
}

/// Plays one world of updates, and tells what happened, a line for each event of interest.
pub fn tell_updates(seed: u64, options: &UpdateOptions) -> UpdateReport {
    world::UpdateWorld::new(seed, options.clone()).play(|_| false, true)
}
