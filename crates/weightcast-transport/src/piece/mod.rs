//! What is moved: copies, cut into pieces, and the units in which their progress is told.

pub(crate) mod copy;
pub(crate) mod extent;
pub(crate) mod filling;
pub(crate) mod pieces;
mod unit;
pub(crate) mod units;

// Where the count of a unit finds its atomics: `weightcast-loom` lends it others.
use std::sync::atomic;
