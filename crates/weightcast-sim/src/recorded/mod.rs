//! Worlds that are written down, because something went wrong in them once.
//!
//! A seed means another world whenever something new is drawn. So a recorded world fixes its
//! groups, its settings and every fault: kind, victim, begin and end. The rest (how long a message
//! takes, what a program calls next) is drawn from any seed, and most seeds show the same failure.

mod duel;
mod line;

use weightcast_protocol::{Safeguards, Span, Time};

use crate::report::Report;
use crate::settings::fault_kinds::{FaultCounts, FaultKind};
use crate::settings::options::WorldOptions;
use crate::settings::strike::Strike;
use crate::world::World;

/// A recorded fault: begin in milliseconds, kind, victim, end in milliseconds.
type StrikeRow = (u64, FaultKind, usize, u64);

/// A world that is written down.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The world's name.
    pub name: &'static str,
    /// What went wrong in the world.
    pub about: &'static str,
    options: fn() -> WorldOptions,
    /// Shards and datacentre of each group: trainers first, then rollouts.
    groups: &'static [(u32, u64)],
    /// How many times longer a chunk takes from another datacentre.
    crossing_cost: u64,
    strikes: &'static [StrikeRow],
}

/// All recorded worlds.
pub const RECORDED: &[Recorded] = &[duel::DUEL, line::LINE];

impl Recorded {
    /// Plays the world. Everything that is not written down is drawn from the seed.
    pub fn play(&self, seed: u64, safeguards: Safeguards) -> Report {
        let options = WorldOptions { faults: FaultCounts::none(), safeguards, ..(self.options)() };
        World::scripted(seed, options, self.groups, self.crossing_cost, &self.strikes())
            .play_until(|_| false)
    }

    fn strikes(&self) -> Vec<Strike> {
        let time = |millis| Time(0) + Span::from_millis(millis);
        let strike = |row: &StrikeRow| {
            let (at, kind, whom, until) = *row;
            Strike { at: time(at), kind, whom, until: time(until) }
        };
        self.strikes.iter().map(strike).collect()
    }
}
