//! Good answers to calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ContentDigest, ExportId, Revision, Version};

/// A shard that shares its host with others of its group. They take from its memory what it brings into
/// the host, so that each byte enters once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sibling {
    /// The shard.
    pub shard: u32,
    /// The lowest shard of the group on the same host.
    pub host: u32,
    /// `host:port` of the shard's data port.
    pub data_address: String,
    /// Name of the shard's memory.
    pub export: ExportId,
}

/// A good answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// All shards are registered.
    Registered {
        /// The shards' layouts, in order of shard. All shards are told the same list.
        layouts: Arc<[ContentDigest]>,
        /// The shards that share their hosts with other shards of the group, in order of shard.
        siblings: Arc<[Sibling]>,
    },
    /// Nothing is registered any more.
    Unregistered,
    /// The version is listed.
    Published {
        /// The version, with its epoch.
        version: Version,
    },
    /// The memory may be changed, once the session has fenced it.
    Unpublished,
    /// All shards hold the version, verified.
    Committed {
        /// The version.
        version: Version,
        /// The replica it was read from.
        source: String,
    },
    /// `update` kept what the group holds: no version replaces it, or none can be read, or a seed
    /// brings the version first.
    Unchanged {
        /// The version that the group holds.
        held: Option<Version>,
    },
    /// A version and the layouts of one replica that holds it.
    Described {
        /// The version.
        version: Version,
        /// Layouts of its shards.
        layouts: Arc<[ContentDigest]>,
    },
    /// The version is kept for the group.
    Retained {
        /// The version.
        version: Version,
    },
    /// The version is not kept for the group any more.
    LetGo,
    /// The available versions. All answers of one revision share one listing.
    Listed(Arc<Listing>),
}

impl Answer {
    /// The outcome of the call, in one word. An `update` that found nothing newer has a word of its
    /// own: it takes no time, and would hide how long the others take.
    pub fn outcome(&self) -> &'static str {
        if matches!(self, Self::Unchanged { .. }) { "unchanged" } else { "ok" }
    }
}

/// All visible versions of a model at one revision (S10).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Listing {
    /// The revision of this listing.
    pub revision: Revision,
    /// Which replicas hold which version. In a recording the revision alone stands for
    /// them: a server answers many with one listing, each of which would be written out.
    #[serde(skip)]
    pub versions: BTreeMap<Version, BTreeSet<String>>,
}
