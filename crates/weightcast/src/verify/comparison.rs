//! What a caller asks to be compared.

use std::time::Duration;

use weightcast_protocol::Selector;

/// Most differing tensors whose places are looked for.
pub const MAX_TENSORS: usize = 16;
/// Most places of one tensor that are told apart.
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
    /// What the replica is compared with.
    pub other: Other,
    /// The version that the replicas have to hold; if none is given, whatever `replica` holds.
    pub version: Option<Selector>,
    /// How long it may take.
    pub deadline: Duration,
}

/// What a replica is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// The replica of this name.
    Replica(String),
    /// Another replica that holds the version, a trainer if there is one; if no other replica does,
    /// as [`Other::Sealed`].
    Any,
    /// Only what the replica was sealed as. Finds the slices that changed, not the rows.
    Sealed,
}
