//! Orders to a worker, and its answers: one JSON value a line.

use serde::{Deserialize, Serialize};

/// The first line: who the worker is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkerStart {
    pub(crate) server: String,
    pub(crate) replica: String,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
    pub(crate) trainer: bool,
    pub(crate) spot: bool,
    pub(crate) offload_seeding: bool,
    pub(crate) datacentre: String,
    pub(crate) host: String,
    /// Address of the data port on an emulated host, without the port.
    pub(crate) bind: Option<String>,
    /// Bytes of the whole replica.
    pub(crate) bytes: u64,
    /// How many tensors each shard holds whole.
    pub(crate) replicated: u64,
}

/// An order, on each further line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Publish this version. If a version is still held, unpublish it and fill the memory first;
    /// otherwise the memory is published as it is.
    Publish { version: u64 },
    /// Unpublish, and fill the memory with this version, so that `Publish` takes no longer than the
    /// call.
    Prepare { version: u64 },
    /// Wait until what is published is digested, and known by its sum.
    Seal,
    /// Update to this version.
    Update { version: u64 },
    /// Unpublish, so that the next update holds nothing and waits for its version.
    Clear,
    /// Update to the latest version.
    Latest,
    /// Compare every byte with this version's.
    Check { version: u64 },
}

/// The answer to each line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerReply {
    /// Open and registered.
    Ready,
    /// Published; `at_ns` is when `publish` was called.
    Published {
        at_ns: u64,
    },
    Prepared,
    Sealed,
    Cleared,
    Updated(WorkerUpdate),
    Checked {
        holds: bool,
    },
    /// The order could not be carried out; the worker goes on.
    Failed {
        error: String,
    },
}

/// One worker's update.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerUpdate {
    /// The version that the worker holds now, if any.
    pub(crate) version: Option<u64>,
    pub(crate) source: Option<String>,
    /// Replicas beside the source, and what the source and each of them gave.
    pub(crate) helpers: Vec<String>,
    pub(crate) given: Vec<u64>,
    pub(crate) way: String,
    pub(crate) bytes: u64,
    pub(crate) verified: u64,
    /// When the call was made, in nanoseconds since 1970.
    pub(crate) called_ns: u64,
    /// When the call returned.
    pub(crate) done_ns: u64,
}

impl WorkerUpdate {
    /// Two shards' updates as one: the bytes of both, from the first call to the last return.
    pub(crate) fn and(self, updated: WorkerUpdate) -> WorkerUpdate {
        let before = self;
        let given = before.given.iter().zip(&updated.given).map(|(one, other)| one + other);
        WorkerUpdate {
            given: given.collect(),
            bytes: before.bytes + updated.bytes,
            verified: before.verified + updated.verified,
            called_ns: before.called_ns.min(updated.called_ns),
            done_ns: before.done_ns.max(updated.done_ns),
            ..updated
        }
    }
}

/// The clock that all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_of_shards_are_one_update() {
        let shard = |bytes, called_ns, done_ns| WorkerUpdate {
            version: Some(3),
            source: Some("trainer".to_owned()),
            helpers: vec!["helper".to_owned()],
            given: vec![bytes, 1],
            way: "tcp".to_owned(),
            bytes,
            verified: bytes + 1,
            called_ns,
            done_ns,
        };
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let shards = [shard(10, 5, 30), shard(20, 4, 50), shard(40, 6, 40)];
            let whole =
                order.map(|n: usize| shards[n].clone()).into_iter().reduce(WorkerUpdate::and);
            let whole = whole.expect("three shards");
            assert_eq!((whole.bytes, whole.verified), (70, 73));
            assert_eq!(whole.given, [70, 3]);
            assert_eq!((whole.called_ns, whole.done_ns, whole.version), (4, 50, Some(3)));
        }
    }
}
