//! Where a reader's bytes come from, and how a read can fail.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ContentDigest, ExportId, Generation, Version};

/// The source of a reading group: a replica, and how to reach its shards.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// The version.
    pub version: Version,
    /// Name of the version's logical tensors.
    pub catalog: ContentDigest,
    /// The source replica.
    pub replica: String,
    /// The source is being filled itself, and has the reader's layout: read each shard's progress,
    /// and no chunk beyond it.
    pub in_flight: bool,
    /// The reader keeps its old version until it is told to
    /// [`Install`](super::ServerMessage::Install) this one: read into other memory.
    pub staged: bool,
    /// Further sources of the same layout, which all hold the version. The reader draws different
    /// ranges from each.
    pub helpers: Vec<String>,
    /// The sources' shards, in order: all of `replica`, then all of each helper. All shards of the
    /// reader are told the same list.
    pub shards: Arc<[SourceShard]>,
}

impl Assignment {
    /// How many sources there are: 1 or more.
    pub fn stripes(&self) -> usize {
        1 + self.helpers.len()
    }

    /// How many shards each source has.
    pub fn shards_each(&self) -> usize {
        self.shards.len() / self.stripes()
    }

    /// The layouts of the source's shards, in order. Each helper has the same.
    pub fn layouts(&self) -> Vec<ContentDigest> {
        self.shards.iter().take(self.shards_each()).map(|shard| shard.layout).collect()
    }

    /// The source that a place in `shards` belongs to, and the number of the shard in that source.
    /// A place beyond the list falls into the last source.
    pub fn at(&self, place: u32) -> (usize, u32) {
        let each = self.shards_each().max(1) as u32;
        ((place / each).min(self.helpers.len() as u32) as usize, place % each)
    }

    /// The names of the sources, in order.
    pub fn sources(&self) -> Vec<&str> {
        std::iter::once(&self.replica).chain(&self.helpers).map(String::as_str).collect()
    }
}

/// One shard of a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceShard {
    /// `host:port` of the shard's data port.
    pub data_address: String,
    /// Name under which the data port serves the memory.
    pub export: ExportId,
    /// Generation at which the memory is served.
    pub generation: Generation,
    /// The shard's layout.
    pub layout: ContentDigest,
}

/// Replicas whose notes tell in which tensor a refused copy differs. The server can't tell: it sees
/// only sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Witnesses {
    /// The refused copy, as readers were told of it.
    pub copy: Option<Assignment>,
    /// Another replica whose copy of the version is good.
    pub holder: Option<Assignment>,
}

/// What a shard saw while it read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReadFailure {
    /// A source shard did not answer, or moved on. Another source may work.
    Source {
        /// The source's shard, by its place in the assignment.
        shard: u32,
        /// What was seen.
        reason: String,
    },
    /// The source's layout does not cover this shard's. No other source will work.
    Layout {
        /// Names the tensor and the missing box.
        detail: String,
    },
}
