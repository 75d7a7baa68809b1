//! A group call: its shards arrive, one decision is taken, every shard gets the same answer (G1 to G5).

pub(super) mod answers;
pub(super) mod register;
pub(super) mod settling;
pub(super) mod transact;
