//! What a world is like before it begins: its sizes and timings, and which kinds of faults may strike.

pub(crate) mod fault_kinds;
pub(crate) mod harshness;
pub(crate) mod options;
pub(crate) mod swarm;
