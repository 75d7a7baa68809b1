//! Mutants: the protocol with a safeguard switched off, or several that mask each other. A checker of the simulator is
//! believed only because it finds them.
//!
//! [`MUTANTS`] is the table of those that clusters show, [`UPDATE_MUTANTS`] of those that worlds of engine updates show;
//! [`PlayedMutant`] is either. [`hunt`] plays one until it is found.

#![forbid(unsafe_code)]

mod list;
mod played;

use std::ops::Range;

pub use list::{MUTANTS, Mutant, PUSH_MUTANTS, PushMutant, UPDATE_MUTANTS, UpdateMutant};
pub use played::PlayedMutant;
use weightcast_sim::Catch;

/// Plays a mutant until one of the checkers that must find it does: the lowest such seed.
pub fn hunt(mutant: &Mutant, seeds: Range<u64>) -> Option<Catch> {
    weightcast_sim::hunt(seeds, |seed| mutant.options(seed), |found| mutant.expects(found))
}
