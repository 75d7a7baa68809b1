//! The table of mutants: each switches one safeguard off, or several that mask each other. A
//! checker is believed only because it finds them. A new mutant is one entry in the list of its concern.

mod contents;
mod groups;
mod pushes;
mod retention;
mod seeding;
mod sources;
mod terms;
mod updates;
mod worlds;

pub use pushes::{PUSH_MUTANTS, PushMutant};
pub use updates::{UPDATE_MUTANTS, UpdateMutant};
use weightcast_protocol::Safeguard;

use weightcast_sim::{InvariantViolation, WorldOptions};

/// A protocol with something missing.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// As the command line has it.
    pub name: &'static str,
    /// What is switched off.
    pub what: &'static str,
    /// The invariants whose checkers must find it; one is enough.
    pub found_by: &'static [&'static str],
    off: &'static [Safeguard],
    /// Makes the world one in which it can show.
    scenario: fn(WorldOptions) -> WorldOptions,
}

impl Mutant {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Mutant> {
        MUTANTS.iter().find(|mutant| mutant.name == name)
    }

    /// Whether this is what had to be found.
    pub fn expects(&self, violation: &InvariantViolation) -> bool {
        self.found_by.contains(&violation.invariant.as_str())
    }

    /// The world in which this seed plays it.
    pub fn options(&self, seed: u64) -> WorldOptions {
        let mut options = (self.scenario)(WorldOptions::drawn(seed));
        options.safeguards = options.safeguards.without(self.off);
        options
    }
}

const LISTS: &[&[Mutant]] =
    &[contents::LIST, groups::LIST, sources::LIST, terms::LIST, retention::LIST, seeding::LIST];

/// All of them.
pub const MUTANTS: &[Mutant] = &{
    let mut all = [LISTS[0][0]; count()];
    let (mut list, mut at) = (0, 0);
    while list < LISTS.len() {
        let mut entry = 0;
        while entry < LISTS[list].len() {
            all[at] = LISTS[list][entry];
            (entry, at) = (entry + 1, at + 1);
        }
        list += 1;
    }
    all
};

const fn count() -> usize {
    let (mut list, mut count) = (0, 0);
    while list < LISTS.len() {
        count += LISTS[list].len();
        list += 1;
    }
    count
}
