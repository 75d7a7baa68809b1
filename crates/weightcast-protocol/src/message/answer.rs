//! Good answers to calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ContentDigest, Revision, Version};

/// A good answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// All shards are registered.
    Registered {
        /// The shards' layouts, in order of shard. All shards are told the same list.
        layouts: Arc<[ContentDigest]>,
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
