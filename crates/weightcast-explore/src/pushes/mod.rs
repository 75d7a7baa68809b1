//! Small pushes: their drivers, targets and senders, in every order of events.
//!
//! The machines are the real ones of [`weightcast_protocol::push`]; memory, data ports and wires are made up. A step is
//! one word or write that arrives, one write that begins, one comparison that ends, one fault, one timer. What is under
//! way stays so for as long as one likes, also after its driver or sender has died.
//!
//! A machine's clock stands still until one of its timers goes off. A timer goes off early within the bounds; and as soon
//! as nothing else can happen, as often as there is one. So a driver that waits for a lost word reminds, and a target that
//! no driver speaks to comes to the end of its lease.
//!
//! Reading order: this file (the size of a push), `parts` and `world` (a state), `driving`, `filling`, `sending`, `faults`,
//! `forgetting` (what becomes of a step), `steps` (what can happen), `taking`, `invariants`, `ends` (what pushes say of themselves),
//! `telling`, `cases`.

mod cases;
mod driving;
mod ends;
mod faults;
mod filling;
mod forgetting;
mod invariants;
mod parts;
mod sending;
mod steps;
mod taking;
mod telling;
#[cfg(test)]
mod tests;
mod world;

use std::fmt;

use weightcast_protocol::Safeguards;

pub use cases::{EXPLORED_PUSH_MUTANTS, push_suite, push_without};
pub use steps::PushStep;
pub use world::PushState;

/// What may go wrong, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::Args)]
pub struct PushFaults {
    /// Drivers that die; each has a successor, which pushes the next version
    #[arg(long, default_value_t = 0)]
    pub driver_deaths: u32,
    /// Drivers that get a successor although they live
    #[arg(long, default_value_t = 0)]
    pub splits: u32,
    /// Senders that die
    #[arg(long, default_value_t = 0)]
    pub sender_deaths: u32,
    /// Senders that stand still, and may go on
    #[arg(long, default_value_t = 0)]
    pub stalls: u32,
    /// Senders whose memory becomes the next version
    #[arg(long, default_value_t = 0)]
    pub moves_on: u32,
    /// Writes that a sender gives up, and that land all the same
    #[arg(long, default_value_t = 0)]
    pub late_writes: u32,
    /// Writes that bring a wrong bit
    #[arg(long, default_value_t = 0)]
    pub flips: u32,
    /// Targets that die; each is started again
    #[arg(long, default_value_t = 0)]
    pub target_deaths: u32,
    /// Targets that give their memory away for a while
    #[arg(long, default_value_t = 0)]
    pub sleeps: u32,
    /// Targets that leave
    #[arg(long, default_value_t = 0)]
    pub leaves: u32,
    /// Pushes that their caller does not want any more
    #[arg(long, default_value_t = 0)]
    pub cancels: u32,
    /// Words that are lost
    #[arg(long, default_value_t = 0)]
    pub losses: u32,
    /// Words that come twice
    #[arg(long, default_value_t = 0)]
    pub repeats: u32,
    /// Timers that go off early
    #[arg(long, default_value_t = 0)]
    pub timeouts: u32,
}

/// The size of a push, and what may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct PushBounds {
    /// Targets, which join at any time while the push runs.
    pub targets: u32,
    /// Senders, of which each holds all parcels.
    pub senders: u32,
    /// Parcels of each target, of one write each.
    pub parcels: u32,
    /// Whether successors push the same version again, instead of the next one.
    pub again: bool,
    /// What may go wrong.
    pub faults: PushFaults,
    /// Safeguards switched off.
    pub safeguards: Safeguards,
    /// The one invariant to look at; others break earlier when a safeguard is off.
    pub only: Option<&'static str>,
}

impl PushBounds {
    /// One target, one sender, one parcel, no fault.
    pub fn quiet() -> Self {
        Self {
            targets: 1,
            senders: 1,
            parcels: 1,
            again: false,
            faults: PushFaults::default(),
            safeguards: Safeguards::default(),
            only: None,
        }
    }

    /// The number of the version that a driver pushes, by its place.
    fn version_of(&self, driver: usize) -> u64 {
        if self.again { 1 } else { driver as u64 + 1 }
    }

    /// The same with these faults.
    pub fn with(self, faults: PushFaults) -> Self {
        Self { faults, ..self }
    }
}

impl fmt::Display for PushBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(f, "a push to {}", count(self.targets, "target"))?;
        write!(f, " by {}", count(self.senders, "sender"))?;
        write!(f, " of {}", count(self.parcels, "parcel"))?;
        if self.again {
            write!(f, ", and again")?;
        }
        let it = self.faults;
        let faults = [
            (it.driver_deaths, "deaths of a driver"),
            (it.splits, "drivers beside their successors"),
            (it.sender_deaths, "deaths of a sender"),
            (it.stalls, "senders that stand still"),
            (it.moves_on, "senders that move on"),
            (it.late_writes, "late writes"),
            (it.flips, "wrong bits"),
            (it.target_deaths, "deaths of a target"),
            (it.sleeps, "sleeps of a target"),
            (it.leaves, "targets that leave"),
            (it.cancels, "pushes that are cancelled"),
            (it.losses, "lost words"),
            (it.repeats, "repeated words"),
            (it.timeouts, "early timers"),
        ];
        for (n, what) in faults.into_iter().filter(|(n, _)| *n > 0) {
            write!(f, ", {what}: {n}")?;
        }
        Ok(())
    }
}
