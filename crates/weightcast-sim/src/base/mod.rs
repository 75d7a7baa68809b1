//! What all rooms stand on: clocks, random numbers, threads.

pub(crate) mod clock;
pub(crate) mod rng;
pub(crate) mod weight;
pub(crate) mod workers;
