//! Worlds of pushes: senders write versions into the memory of targets, while all of them, drivers and wires fail.
//!
//! A small world of its own: the real machines of `weightcast_protocol::push` run as they do in a job; memory, data ports,
//! wires and the platform are made up. Faults strike for a while; then every target must come to serve the newest version.
//!
//! Reading order: `options` (what a world is like), `parts` (what it is made of), `checkers` (what must hold), `coverage`,
//! `report`, `world` (the loop), `acting` (what targets, senders, drivers and faults do), `campaign`.

mod acting;
mod campaign;
mod checkers;
mod coverage;
mod options;
mod parts;
mod report;
mod world;

pub use campaign::{PushCampaign, campaign_of_pushes, hunt_pushes};
pub use coverage::PushPoint;
pub use options::{PushFault, PushOptions};
pub use report::{PushStory, PushWorldReport};

/// Plays one world of pushes: the same seed and options give the same report.
pub fn run_pushes(seed: u64, options: &PushOptions) -> PushWorldReport {
    world::PushWorld::new(seed, options.clone()).play(|_| false, false)
}

/// Plays one world of pushes, and tells what happened, a line for each event of interest.
pub fn tell_pushes(seed: u64, options: &PushOptions) -> PushWorldReport {
    world::PushWorld::new(seed, options.clone()).play(|_| false, true)
}
