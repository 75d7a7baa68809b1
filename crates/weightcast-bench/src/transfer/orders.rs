//! Messages between the measuring process and a source process: one JSON value a line.

use serde::{Deserialize, Serialize};

use crate::weights::cases::TransferCase;

/// The first line: who the source is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SourceStart {
    pub(crate) server: String,
    pub(crate) model: String,
    pub(crate) case: TransferCase,
    pub(crate) shard: u32,
    /// Whether its memory is shared.
    pub(crate) shared: bool,
    /// Bytes to serve bare, for a limit to read.
    pub(crate) bare_bytes: Option<u64>,
}

/// Each further line: publish this version, and unpublish the one before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Publish {
    pub(crate) version: u64,
    /// Whether to fill the memory with the version's content first.
    pub(crate) fill: bool,
}

/// The answer to each line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SourceReply {
    /// Registered.
    Ready { bare: Option<BareExport> },
    /// Published and sealed.
    Published(Published),
    /// The source process failed, and ends.
    Failed { error: String },
}

/// Where a limit finds the bytes to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BareExport {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) export: u64,
}

/// How long a publication took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Published {
    pub(crate) publish_s: f64,
    /// From the return of `publish` until all bytes were digested.
    pub(crate) seal_s: f64,
}

impl Published {
    /// The longer of both, for each of the two times.
    pub(crate) fn longer(self, other: Self) -> Self {
        Self {
            publish_s: self.publish_s.max(other.publish_s),
            seal_s: self.seal_s.max(other.seal_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slowest shard to publish may not be the slowest to seal.
    #[test]
    fn either_time_is_that_of_the_shard_that_took_longest() {
        let shards = [(1.0, 5.0), (3.0, 2.0), (2.0, 4.0)];
        let took = shards.map(|(publish_s, seal_s)| Published { publish_s, seal_s });
        for turned in 0..shards.len() {
            let mut took = took;
            took.rotate_left(turned);
            let slowest = took.into_iter().reduce(Published::longer).unwrap();
            assert_eq!((slowest.publish_s, slowest.seal_s), (3.0, 5.0), "{turned}");
        }
    }
}
