//! The result of a call that brings a version.

use weightcast_protocol::Version;

use super::reading::plans::PlanFrom;

/// What a read moved, and how fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Bytes of this shard's slices.
    pub bytes: u64,
    /// Of those, bytes that were not moved: the memory held them already, by digests of the source's
    /// slices and of the memory.
    pub unchanged: u64,
    /// Of those, bytes covered by a digest that was compared with the publisher's.
    pub verified: u64,
    /// Seconds from the known layouts of the source until all bytes had arrived and were digested.
    pub seconds: f64,
    /// Of those, seconds spent on the plan; nearly none from the second version on.
    pub plan_seconds: f64,
    /// Where the plan came from.
    pub plan_from: PlanFrom,
    /// `shared`, `direct` or `tcp`.
    pub way: String,
    /// Why that way.
    pub way_reason: String,
    /// Bytes that came out of shared memory, from any source.
    pub shared: u64,
    /// Bytes that were read directly, from any source.
    pub direct: u64,
    /// Bytes that came over TCP. Of a read that continued after the loss of a source, these, `direct` and
    /// `shared` are what the last sources gave.
    pub tcp: u64,
    /// Further replicas that gave bytes of this read, beside the source.
    pub helpers: Vec<String>,
    /// Bytes that the source gave, and then each helper.
    pub given: Vec<u64>,
    /// Bytes that came from other shards of the group on this host, which had brought them there.
    pub siblings: u64,
    /// Bytes that a staged update copied into place once all had arrived; else zero.
    pub staged: u64,
    /// Seconds that the copying into place took.
    pub install_seconds: f64,
}

/// The result of `replicate` or `update`.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// Whether the memory holds another version now than before.
    pub changed: bool,
    /// The version that the memory holds now.
    pub version: Option<Version>,
    /// The replica it was read from.
    pub source: Option<String>,
    /// What moved.
    pub transfer: Transfer,
}
