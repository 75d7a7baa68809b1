//! Worlds that are written down, because something went wrong in them once.
//!
//! What a seed means changes whenever something new is drawn. Here the groups, the settings and every
//! fault stand as they were: when, whom, until when. The rest (how long a message takes, what a program
//! calls next) is drawn from any seed, and the story is the same with most of them.

mod duel;
mod line;

use weightcast_protocol::{Safeguards, Span, Time};

use crate::faults::Strike;
use crate::report::Report;
use crate::settings::fault_kinds::{FaultCounts, FaultKind};
use crate::settings::options::Options;
use crate::world::World;

/// A fault as it is written down: milliseconds at which it begins and is over.
type Row = (u64, FaultKind, usize, u64);

/// A world that is written down.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Its name.
    pub name: &'static str,
    /// What went wrong in it.
    pub about: &'static str,
    options: fn() -> Options,
    /// Shards and datacentre of each group: trainers first, then rollouts.
    pub(crate) groups: &'static [(u32, u64)],
    /// How many times longer a chunk takes from another datacentre.
    pub(crate) crossing_cost: u64,
    strikes: &'static [Row],
}

/// All of them.
pub const RECORDED: &[Recorded] = &[duel::DUEL, line::LINE];

impl Recorded {
    /// Plays it; what is not written down is drawn from the seed.
    pub fn play(&self, seed: u64, safeguards: Safeguards) -> Report {
        let options = Options { faults: FaultCounts::none(), safeguards, ..(self.options)() };
        World::recorded(seed, options, self).play_until(|_| false)
    }

    pub(crate) fn strikes(&self) -> Vec<Strike> {
        let time = |millis| Time(0) + Span::from_millis(millis);
        let strike = |row: &Row| {
            let (at, kind, whom, until) = *row;
            Strike { at: time(at), kind, whom, until: time(until) }
        };
        self.strikes.iter().map(strike).collect()
    }
}
