//! How calls end well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{ContentDigest, Revision, Version};

/// A call's good end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// All shards are registered.
    Registered {
        /// Their layouts, in order of shard. All shards are told the same list.
        layouts: Arc<[ContentDigest]>,
    },
    /// Nothing is registered any more.
    Unregistered,
    /// The version is visible.
    Published {
        /// With its epoch.
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
    /// `update` found nothing newer, or nothing at all.
    Unchanged {
        /// What the group holds, if anything.
        held: Option<Version>,
    },
    /// A version and the layouts of one replica that holds it.
    Described {
        /// The version.
        version: Version,
        /// Layouts of its shards.
        layouts: Arc<[ContentDigest]>,
    },
    /// What there is. One listing of a revision is shared by all answers.
    Listed(Arc<Listing>),
}

/// All visible versions of a model at one revision (S10).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    /// When.
    pub revision: Revision,
    /// Which replicas hold which version.
    pub versions: BTreeMap<Version, BTreeSet<String>>,
}
