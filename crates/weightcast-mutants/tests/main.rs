//! Every mutant of the protocol: found, recorded, replayed.

mod cli;
mod found;
mod page;
mod recorded;
mod recordings;
mod replay;

/// Worlds in which a mutant is looked for. Most are found in the first ten, the rarest in some hundred, and which these
/// are changes with every world.
const SEEDS: std::ops::Range<u64> = 0..600;
