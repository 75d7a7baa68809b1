//! What a call that brings a version tells its caller.

use weightcast_protocol::Version;

use super::reading::plans::PlanFrom;

/// What a read moved, and how fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Bytes of this shard's slices.
    pub bytes: u64,
    /// Of those, bytes covered by a digest that was compared with the publisher's.
    pub verified: u64,
    /// From the assignment of a source until all bytes had arrived and were digested.
    pub seconds: f64,
    /// Of those, spent on the plan; nearly nothing from the second version on.
    pub plan_seconds: f64,
    /// Where the plan came from.
    pub plan_from: PlanFrom,
    /// `direct` or `tcp`.
    pub way: String,
    /// Why that way.
    pub way_reason: String,
    /// Replicas that it was drawn from beside the source, each for other ranges.
    pub helpers: Vec<String>,
    /// Bytes that a staged update copied into place once all had arrived; else zero.
    pub staged: u64,
    /// How long that took.
    pub install_seconds: f64,
}

/// What `replicate` or `update` came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// Whether the memory holds another version now than before.
    pub changed: bool,
    /// What it holds.
    pub version: Option<Version>,
    /// The replica it was read from.
    pub source: Option<String>,
    /// What moved.
    pub transfer: Transfer,
}
