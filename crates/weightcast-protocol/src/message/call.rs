//! The calls of a group.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Condition, ContentDigest, ExportId, Generation, Selector};

/// A call of Table 2 of the paper. All shards of a group make the same calls in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Call {
    /// Declares the shard's memory. The arguments may differ between shards.
    Register {
        /// Name of the shard's layout; the manifest was stored before.
        layout: ContentDigest,
        /// Name under which the shard's data port serves the memory.
        export: ExportId,
        /// Bytes held.
        bytes: u64,
    },
    /// Takes the registration back.
    Unregister,
    /// Makes the registered memory visible as a version, with a promise not to change it.
    Publish {
        /// The version's number.
        version: u64,
        /// Name of the group's logical tensors: names, dtypes, shapes.
        catalog: ContentDigest,
        /// Generation at which the shard serves. The only argument that may differ.
        generation: Generation,
    },
    /// Revokes the publication. Answered when the copy has no readers, or the drain deadline has
    /// passed, and retention lets the copy go.
    Unpublish,
    /// Fills the registered memory with a version; waits for the version until the deadline.
    Replicate {
        /// The version.
        selector: Selector,
    },
    /// Replaces the held version if a newer version is available.
    Update {
        /// The version.
        selector: Selector,
        /// Whether an older version may replace the held version, too.
        allow_rollback: bool,
        /// Reads beside the memory. The old version is held and served until the new version is
        /// complete and verified on all shards. No effect if the group holds nothing.
        staged: bool,
    },
    /// Waits for a version, and returns the layouts of a replica that holds it.
    Describe {
        /// The version.
        selector: Selector,
    },
    /// Waits for a version, and has it kept for the group: until [`Call::LetGo`], or the group's end.
    Retain {
        /// The version.
        selector: Selector,
    },
    /// Lets go of what [`Call::Retain`] keeps.
    LetGo {
        /// The version's number.
        version: u64,
    },
    /// Lists which replicas hold which versions.
    List,
    /// Waits until a condition holds. Answered with the listing at which it held.
    Wait {
        /// The condition.
        until: Condition,
    },
    /// This shard can't make the call that its group makes now, for a reason of its own. Takes the
    /// place of any call, and ends the call for all shards with `LayoutMismatch`; nothing is
    /// changed.
    Decline {
        /// What is wrong with this shard, for people; cut to [`crate::limits::DETAIL_CHARS`].
        detail: String,
    },
}

impl Call {
    /// The kind of the call, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Register { .. } => "register",
            Self::Unregister => "unregister",
            Self::Publish { .. } => "publish",
            Self::Unpublish => "unpublish",
            Self::Replicate { .. } => "replicate",
            Self::Update { .. } => "update",
            Self::Describe { .. } => "describe",
            Self::Retain { .. } => "retain",
            Self::LetGo { .. } => "let_go",
            Self::List => "list",
            Self::Wait { .. } => "wait",
            Self::Decline { .. } => "decline",
        }
    }
}

/// As a person would write the call.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publish { version, .. } => write!(f, "publish({version})"),
            Self::Replicate { selector } => write!(f, "replicate({selector})"),
            Self::Update { selector, allow_rollback, staged } => {
                let rollback = if *allow_rollback { ", allow_rollback" } else { "" };
                let staged = if *staged { ", staged" } else { "" };
                write!(f, "update({selector}{rollback}{staged})")
            }
            Self::Describe { .. } => f.write_str("register or catalog"),
            Self::Retain { selector } => write!(f, "retain({selector})"),
            Self::LetGo { version } => write!(f, "let_go({version})"),
            Self::Wait { until } => write!(f, "wait({until})"),
            Self::Register { .. }
            | Self::Unregister
            | Self::Unpublish
            | Self::List
            | Self::Decline { .. } => f.write_str(self.name()),
        }
    }
}
