//! The result of a comparison.

use serde::Serialize;
use weightcast_protocol::Version;

/// What [`verify`](super::verify()) found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The replicas hold the same, all copies within each are the same, and nothing is known to
    /// differ from what was published.
    pub equal: bool,
    /// The model.
    pub model: String,
    /// Epoch of the version.
    pub epoch: u64,
    /// Number of the version.
    pub version: u64,
    /// The compared replicas: two, or one that was compared with what it was sealed as.
    pub replicas: Vec<Verified>,
    /// How many tensors were compared.
    pub tensors: u64,
    /// The names of all tensors that differ.
    pub different: Vec<String>,
    /// Where tensors differ, for the first [`MAX_TENSORS`](super::MAX_TENSORS) of them.
    pub differences: Vec<Difference>,
    /// Bytes of memory that shards have digested for the comparison; each at least once.
    pub digested: u64,
    /// Bytes that went over the network: layouts, questions, digests.
    pub moved: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Verdict {
    /// The version.
    pub fn version(&self) -> Version {
        Version { epoch: weightcast_protocol::Epoch(self.epoch), number: self.version }
    }
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Its name.
    pub name: String,
    /// How many shards it has.
    pub shards: u32,
    /// Bytes that they hold.
    pub bytes: u64,
    /// All copies of what several of its shards hold are the same.
    pub copies_agree: bool,
    /// The replica's content, all copies included, is what the version was sealed with; nothing
    /// while the version is not sealed.
    pub as_published: Option<bool>,
}

/// One tensor that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub tensor: String,
    /// Its type.
    pub dtype: &'static str,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Where, for the first [`MAX_RANGES`](super::MAX_RANGES) places.
    pub ranges: Vec<DifferentRange>,
    /// How many places there are beyond these.
    pub more_ranges: u64,
}

/// One place of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentRange {
    /// Start and end in each dimension.
    pub slice: Vec<(u64, u64)>,
    /// Every row of the place differs, and all of the difference in these rows is in it. If false,
    /// some rows differ.
    pub exact: bool,
    /// The place differed at first and then did not any more: somebody writes to it.
    pub moving: bool,
    /// The shards that hold the place, grouped by what they hold.
    pub readings: Vec<Vec<HeldBy>>,
}

/// One shard that holds a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldBy {
    /// The replica.
    pub replica: String,
    /// Its shard.
    pub shard: u32,
    /// The shard's data port.
    pub address: String,
    /// Whether the shard's slice around the place is what was sealed, or verified when it was read;
    /// nothing where that is not known.
    pub as_published: Option<bool>,
}
