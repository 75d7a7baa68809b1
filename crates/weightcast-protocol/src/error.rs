//! How a call can fail. Closed, with fields; "not yet" and "unchanged" are answers, not errors.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{OpSeq, Selector, Version};

/// Why a call of a shard failed. Every shard of a group gets the same error for the same call (G1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
pub enum CallError {
    /// The version was never published, is gone, or did not come before the deadline.
    #[error(
        "version {selector} of model {model} is not available (latest is {}); publish it, name \
         another, or wait longer",
        latest.map_or("none".to_owned(), |v| v.to_string())
    )]
    VersionUnavailable {
        /// The model that was asked.
        model: String,
        /// What the call named.
        selector: Selector,
        /// The newest available version, if there is one.
        latest: Option<Version>,
    },
    /// Every source of the version failed during the read. The target holds nothing now or, if the
    /// update was staged, its old version.
    #[error("lost source {source_replica} of version {version}: {reason}; no other source has it")]
    SourceLost {
        /// The version being read.
        version: Version,
        /// The replica that was read last.
        source_replica: String,
        /// What the reader saw.
        reason: String,
    },
    /// The bytes that arrived are not the publisher's. The target holds nothing now or, if the
    /// update was staged, its old version.
    #[error(
        "version {version} read from {source_replica} does not match its publisher's digest{}; \
         a buffer was changed while it was published, or memory or network corrupted it",
        if detail.is_empty() { String::new() } else { format!(": {detail}") }
    )]
    DigestMismatch {
        /// The version being read.
        version: Version,
        /// The source replica, or all of them.
        source_replica: String,
        /// Which tensor and rows, where known.
        detail: String,
    },
    /// A version was published twice with different content, or the shards of one replica hold
    /// different copies of the same slice (S7). The publication is refused, and has no readers. All
    /// calls fail with this until `unpublish`, which repeats the error and frees the memory. A
    /// `publish` whose catalog differs fails at once instead, and changes nothing.
    #[error(
        "version {version} published by {replica} was refused, and nobody can read it: {detail}"
    )]
    ContentMismatch {
        /// The version.
        version: Version,
        /// The replica that was refused.
        replica: String,
        /// What differs.
        detail: String,
    },
    /// The layout does not fit the version, or the shards of a group registered different catalogs.
    #[error("layout of {replica} does not fit: {detail}")]
    LayoutMismatch {
        /// The replica whose layout it is.
        replica: String,
        /// What does not fit.
        detail: String,
    },
    /// Two shards of a group made different calls at the same place in their sequence (G2).
    #[error(
        "group {replica} diverged at call {seq}: shard {shard_a} called {call_a}, shard {shard_b} \
         called {call_b}; all shards must make the same calls in the same order; reopen the group"
    )]
    GroupDiverged {
        /// The replica whose group it is.
        replica: String,
        /// The call's number.
        seq: OpSeq,
        /// One shard.
        shard_a: u32,
        /// Its call.
        call_a: String,
        /// The other shard.
        shard_b: u32,
        /// Its call.
        call_b: String,
    },
    /// A member of the group is gone; the others were fenced. Reopen to join a new group.
    #[error("group {replica} is broken: {reason}; close this handle and open it again")]
    GroupBroken {
        /// The replica whose group it was.
        replica: String,
        /// Which shard went, and why.
        reason: String,
    },
    /// The deadline passed.
    #[error(
        "{call} timed out waiting for {waiting_for}{}",
        if detail.is_empty() { String::new() } else { format!("; {detail}") }
    )]
    Timeout {
        /// The call.
        call: String,
        /// What had not happened yet.
        waiting_for: String,
        /// Who held the call up, and what else the server knew: the sentence of `weightcast why`.
        detail: String,
    },
    /// The reference server did not answer before the lease or the deadline ran out.
    #[error("reference server {server} unreachable: {reason}")]
    ServerUnreachable {
        /// Its address, or the addresses of all servers.
        server: String,
        /// What was seen.
        reason: String,
    },
    /// The outcome of a commit could not be learned. The shard serves nothing and was fenced.
    #[error("cannot learn whether version {version} was committed; the shard holds nothing now")]
    InDoubt {
        /// The version that was being committed.
        version: Version,
    },
    /// A bound was exceeded.
    #[error("{what} is {got}, the limit is {limit}")]
    Limit {
        /// What is bounded.
        what: String,
        /// The bound.
        limit: u64,
        /// What was asked for.
        got: u64,
    },
    /// The call makes no sense in the present state; nothing was changed.
    #[error("{detail}")]
    Misuse {
        /// What was wrong and what to do.
        detail: String,
    },
}

impl CallError {
    /// The kind of the error, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::VersionUnavailable { .. } => "version_unavailable",
            Self::SourceLost { .. } => "source_lost",
            Self::DigestMismatch { .. } => "digest_mismatch",
            Self::ContentMismatch { .. } => "content_mismatch",
            Self::LayoutMismatch { .. } => "layout_mismatch",
            Self::GroupDiverged { .. } => "group_diverged",
            Self::GroupBroken { .. } => "group_broken",
            Self::Timeout { .. } => "timeout",
            Self::ServerUnreachable { .. } => "server_unreachable",
            Self::InDoubt { .. } => "in_doubt",
            Self::Limit { .. } => "limit",
            Self::Misuse { .. } => "misuse",
        }
    }
}
