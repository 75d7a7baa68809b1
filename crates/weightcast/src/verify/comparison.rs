//! What a caller asks to be compared.

use std::time::Duration;

use weightcast_protocol::Selector;

/// Tensors whose places are looked for, of those that differ.
pub const MAX_TENSORS: usize = 16;
/// Places of one tensor that are told apart.
pub const MAX_RANGES: usize = 16;

/// Called several times a second, by the thread that compares, with the bytes digested so far; false
/// ends the comparison.
pub type Watch<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The model.
    pub model: String,
    /// A replica.
    pub replica: String,
    /// With what.
    pub other: Other,
    /// The version that they have to hold; whatever the replica holds, if none is given.
    pub version: Option<Selector>,
    /// How long it may take.
    pub deadline: Duration,
}

/// What a replica is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// This one.
    Replica(String),
    /// Another one that holds the version, a trainer if there is one; if there is no other at all,
    /// as [`Other::Sealed`].
    Any,
    /// What it was sealed as alone. Finds the slices that changed, not the rows.
    Sealed,
}
