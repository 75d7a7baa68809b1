//! What a world is like before it begins: its sizes and timings, and which faults may strike.

pub(crate) mod fault_kinds;
pub(crate) mod harshness;
pub(crate) mod options;
pub(crate) mod strike;
pub(crate) mod swarm;
